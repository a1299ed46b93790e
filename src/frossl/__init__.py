"""Turn a folder of unlabelled images into an encoder by self-supervised learning.

Importing frossl imports no torch: public names are loaded when they are first used.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frossl._api import KNN as KNN
    from frossl._api import Checkpoints as Checkpoints
    from frossl._api import Demo as Demo
    from frossl._api import DoctorReport as DoctorReport
    from frossl._api import EmbedResult as EmbedResult
    from frossl._api import EvalOptions as EvalOptions
    from frossl._api import Evaluation as Evaluation
    from frossl._api import Evaluations as Evaluations
    from frossl._api import FineTune as FineTune
    from frossl._api import LinearProbe as LinearProbe
    from frossl._api import Plan as Plan
    from frossl._api import Run as Run
    from frossl._api import RunOptions as RunOptions
    from frossl._api import SGDProbe as SGDProbe
    from frossl._api import check as check
    from frossl._api import checkpoints as checkpoints
    from frossl._api import compare as compare
    from frossl._api import demo as demo
    from frossl._api import doctor as doctor
    from frossl._api import embed as embed
    from frossl._api import export as export
    from frossl._api import finetune as finetune
    from frossl._api import knn as knn
    from frossl._api import linear as linear
    from frossl._api import list_names as list_names
    from frossl._api import list_runs as list_runs
    from frossl._api import load_encoder as load_encoder
    from frossl._api import measure as measure
    from frossl._api import pack as pack
    from frossl._api import plan as plan
    from frossl._api import pretrain as pretrain
    from frossl._api import probe as probe
    from frossl._api import recipe as recipe
    from frossl._api import replay as replay
    from frossl._api import report as report
    from frossl._api import resume as resume
    from frossl._api import spectrum as spectrum
    from frossl._api import views as views
    from frossl._api import watch as watch
    from frossl.augment import Augment as Augment
    from frossl.augment import ViewSpec as ViewSpec
    from frossl.augment import view_set as view_set
    from frossl.config import Config as Config
    from frossl.engine.gather import gather as gather
    from frossl.errors import FrosslError as FrosslError
    from frossl.estimator import FroSSLEncoder as FroSSLEncoder
    from frossl.evaluation import few_label_accuracy as few_label_accuracy
    from frossl.evaluation import knn_accuracy as knn_accuracy
    from frossl.evaluation import logistic_accuracy as logistic_accuracy
    from frossl.objectives import BarlowTwinsLoss as BarlowTwinsLoss
    from frossl.objectives import BYOLLoss as BYOLLoss
    from frossl.objectives import CorInfoMaxLoss as CorInfoMaxLoss
    from frossl.objectives import DINOLoss as DINOLoss
    from frossl.objectives import EMPSSLLoss as EMPSSLLoss
    from frossl.objectives import FroSSLLoss as FroSSLLoss
    from frossl.objectives import IsoLoss as IsoLoss
    from frossl.objectives import IVNELoss as IVNELoss
    from frossl.objectives import LeJEPALoss as LeJEPALoss
    from frossl.objectives import MatrixSSLLoss as MatrixSSLLoss
    from frossl.objectives import MMCRLoss as MMCRLoss
    from frossl.objectives import MoCoLoss as MoCoLoss
    from frossl.objectives import SimCLRLoss as SimCLRLoss
    from frossl.objectives import SimSiamLoss as SimSiamLoss
    from frossl.objectives import SpectralContrastiveLoss as SpectralContrastiveLoss
    from frossl.objectives import SwAVLoss as SwAVLoss
    from frossl.objectives import TiCoLoss as TiCoLoss
    from frossl.objectives import VICRegLoss as VICRegLoss
    from frossl.objectives import VISRegLoss as VISRegLoss
    from frossl.objectives import WMSELoss as WMSELoss
    from frossl.objectives import barlow_loss as barlow_loss
    from frossl.objectives import byol_loss as byol_loss
    from frossl.objectives import corinfomax_loss as corinfomax_loss
    from frossl.objectives import dino_loss as dino_loss
    from frossl.objectives import empssl_loss as empssl_loss
    from frossl.objectives import frossl_loss as frossl_loss
    from frossl.objectives import iso_loss as iso_loss
    from frossl.objectives import ivne_loss as ivne_loss
    from frossl.objectives import lejepa_loss as lejepa_loss
    from frossl.objectives import log_det_divergence as log_det_divergence
    from frossl.objectives import matrixssl_loss as matrixssl_loss
    from frossl.objectives import mmcr_loss as mmcr_loss
    from frossl.objectives import moco_loss as moco_loss
    from frossl.objectives import petz_renyi_divergence as petz_renyi_divergence
    from frossl.objectives import renyi_variance as renyi_variance
    from frossl.objectives import simclr_loss as simclr_loss
    from frossl.objectives import simsiam_loss as simsiam_loss
    from frossl.objectives import spectral_loss as spectral_loss
    from frossl.objectives import swav_loss as swav_loss
    from frossl.objectives import tico_loss as tico_loss
    from frossl.objectives import vicreg_loss as vicreg_loss
    from frossl.objectives import visreg_loss as visreg_loss
    from frossl.objectives import von_neumann_divergence as von_neumann_divergence
    from frossl.objectives import wmse_loss as wmse_loss
    from frossl.types import Batch as Batch
    from frossl.types import Callback as Callback
    from frossl.types import Clock as Clock
    from frossl.types import LossTerms as LossTerms

_HOME = {
    "Checkpoints": "_api",
    "Demo": "_api",
    "DoctorReport": "_api",
    "EmbedResult": "_api",
    "EvalOptions": "_api",
    "Evaluation": "_api",
    "Evaluations": "_api",
    "FineTune": "_api",
    "KNN": "_api",
    "LinearProbe": "_api",
    "SGDProbe": "_api",
    "Plan": "_api",
    "RunOptions": "_api",
    "list_names": "_api",
    "list_runs": "_api",
    "Augment": "augment",
    "BYOLLoss": "objectives",
    "BarlowTwinsLoss": "objectives",
    "Batch": "types",
    "Clock": "types",
    "Config": "config",
    "CorInfoMaxLoss": "objectives",
    "DINOLoss": "objectives",
    "EMPSSLLoss": "objectives",
    "FroSSLEncoder": "estimator",
    "FroSSLLoss": "objectives",
    "FrosslError": "errors",
    "IVNELoss": "objectives",
    "IsoLoss": "objectives",
    "LeJEPALoss": "objectives",
    "LossTerms": "types",
    "MMCRLoss": "objectives",
    "MatrixSSLLoss": "objectives",
    "MoCoLoss": "objectives",
    "Run": "_api",
    "SimCLRLoss": "objectives",
    "SimSiamLoss": "objectives",
    "SpectralContrastiveLoss": "objectives",
    "SwAVLoss": "objectives",
    "TiCoLoss": "objectives",
    "VICRegLoss": "objectives",
    "VISRegLoss": "objectives",
    "ViewSpec": "augment",
    "WMSELoss": "objectives",
    "Callback": "types",
    "barlow_loss": "objectives",
    "byol_loss": "objectives",
    "check": "_api",
    "checkpoints": "_api",
    "compare": "_api",
    "corinfomax_loss": "objectives",
    "demo": "_api",
    "dino_loss": "objectives",
    "doctor": "_api",
    "embed": "_api",
    "empssl_loss": "objectives",
    "export": "_api",
    "few_label_accuracy": "evaluation",
    "finetune": "_api",
    "frossl_loss": "objectives",
    "gather": "engine.gather",
    "iso_loss": "objectives",
    "ivne_loss": "objectives",
    "knn": "_api",
    "knn_accuracy": "evaluation",
    "lejepa_loss": "objectives",
    "linear": "_api",
    "load_encoder": "_api",
    "log_det_divergence": "objectives",
    "logistic_accuracy": "evaluation",
    "matrixssl_loss": "objectives",
    "measure": "_api",
    "mmcr_loss": "objectives",
    "moco_loss": "objectives",
    "pack": "_api",
    "petz_renyi_divergence": "objectives",
    "plan": "_api",
    "pretrain": "_api",
    "probe": "_api",
    "recipe": "_api",
    "renyi_variance": "objectives",
    "replay": "_api",
    "report": "_api",
    "resume": "_api",
    "simclr_loss": "objectives",
    "simsiam_loss": "objectives",
    "spectral_loss": "objectives",
    "spectrum": "_api",
    "swav_loss": "objectives",
    "tico_loss": "objectives",
    "vicreg_loss": "objectives",
    "view_set": "augment",
    "views": "_api",
    "watch": "_api",
    "visreg_loss": "objectives",
    "von_neumann_divergence": "objectives",
    "wmse_loss": "objectives",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("frossl")
    if name == "Watch":
        warnings.warn("frossl.Watch is now frossl.Callback", DeprecationWarning, stacklevel=2)
        return import_module("frossl.types").Watch
    if name not in _HOME:
        raise AttributeError(f"module 'frossl' has no attribute {name!r}")
    return getattr(import_module(f"frossl.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
