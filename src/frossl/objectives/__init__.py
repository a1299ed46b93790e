"""Objectives: pure functions from projections (V, N, D) to LossTerms, without communication or logging."""

from __future__ import annotations

from frossl.objectives.barlow import BarlowTwinsLoss as BarlowTwinsLoss
from frossl.objectives.barlow import barlow_loss as barlow_loss
from frossl.objectives.byol import BYOLLoss as BYOLLoss
from frossl.objectives.byol import byol_loss as byol_loss
from frossl.objectives.contract import Objective as Objective
from frossl.objectives.contract import hints_of as hints_of
from frossl.objectives.corinfomax import CorInfoMaxLoss as CorInfoMaxLoss
from frossl.objectives.corinfomax import corinfomax_loss as corinfomax_loss
from frossl.objectives.dino import DINOLoss as DINOLoss
from frossl.objectives.dino import dino_loss as dino_loss
from frossl.objectives.empssl import EMPSSLLoss as EMPSSLLoss
from frossl.objectives.empssl import empssl_loss as empssl_loss
from frossl.objectives.frossl import FroSSLLoss as FroSSLLoss
from frossl.objectives.frossl import frossl_loss as frossl_loss
from frossl.objectives.iso import IsoLoss as IsoLoss
from frossl.objectives.iso import iso_loss as iso_loss
from frossl.objectives.ivne import IVNELoss as IVNELoss
from frossl.objectives.ivne import ivne_loss as ivne_loss
from frossl.objectives.lejepa import LeJEPALoss as LeJEPALoss
from frossl.objectives.lejepa import lejepa_loss as lejepa_loss
from frossl.objectives.matrixssl import MatrixSSLLoss as MatrixSSLLoss
from frossl.objectives.matrixssl import matrixssl_loss as matrixssl_loss
from frossl.objectives.mmcr import MMCRLoss as MMCRLoss
from frossl.objectives.mmcr import mmcr_loss as mmcr_loss
from frossl.objectives.moco import MoCoLoss as MoCoLoss
from frossl.objectives.moco import moco_loss as moco_loss
from frossl.objectives.simclr import SimCLRLoss as SimCLRLoss
from frossl.objectives.simclr import simclr_loss as simclr_loss
from frossl.objectives.simsiam import SimSiamLoss as SimSiamLoss
from frossl.objectives.simsiam import simsiam_loss as simsiam_loss
from frossl.objectives.spectra import log_det_divergence as log_det_divergence
from frossl.objectives.spectra import petz_renyi_divergence as petz_renyi_divergence
from frossl.objectives.spectra import renyi_variance as renyi_variance
from frossl.objectives.spectra import von_neumann_divergence as von_neumann_divergence
from frossl.objectives.spectral import SpectralContrastiveLoss as SpectralContrastiveLoss
from frossl.objectives.spectral import spectral_loss as spectral_loss
from frossl.objectives.swav import SwAVLoss as SwAVLoss
from frossl.objectives.swav import swav_loss as swav_loss
from frossl.objectives.tico import TiCoLoss as TiCoLoss
from frossl.objectives.tico import tico_loss as tico_loss
from frossl.objectives.vicreg import VICRegLoss as VICRegLoss
from frossl.objectives.vicreg import vicreg_loss as vicreg_loss
from frossl.objectives.visreg import VISRegLoss as VISRegLoss
from frossl.objectives.visreg import visreg_loss as visreg_loss
from frossl.objectives.wmse import WMSELoss as WMSELoss
from frossl.objectives.wmse import wmse_loss as wmse_loss

OBJECTIVES: dict[str, type[Objective]] = {
    "frossl": FroSSLLoss,
    "vicreg": VICRegLoss,
    "barlow": BarlowTwinsLoss,
    "wmse": WMSELoss,
    "corinfomax": CorInfoMaxLoss,
    "ivne": IVNELoss,
    "mmcr": MMCRLoss,
    "simclr": SimCLRLoss,
    "moco": MoCoLoss,
    "swav": SwAVLoss,
    "simsiam": SimSiamLoss,
    "byol": BYOLLoss,
    "dino": DINOLoss,
    "tico": TiCoLoss,
    "empssl": EMPSSLLoss,
    "matrixssl": MatrixSSLLoss,
    "spectral": SpectralContrastiveLoss,
    "iso": IsoLoss,
    "lejepa": LeJEPALoss,
    "visreg": VISRegLoss,
}
"""All objectives by name."""

# names: written by `python docs/generate.py`
__all__ = [
    "OBJECTIVES",
    "BYOLLoss",
    "BarlowTwinsLoss",
    "CorInfoMaxLoss",
    "DINOLoss",
    "EMPSSLLoss",
    "FroSSLLoss",
    "IVNELoss",
    "IsoLoss",
    "LeJEPALoss",
    "MMCRLoss",
    "MatrixSSLLoss",
    "MoCoLoss",
    "Objective",
    "SimCLRLoss",
    "SimSiamLoss",
    "SpectralContrastiveLoss",
    "SwAVLoss",
    "TiCoLoss",
    "VICRegLoss",
    "VISRegLoss",
    "WMSELoss",
    "barlow_loss",
    "byol_loss",
    "corinfomax_loss",
    "dino_loss",
    "empssl_loss",
    "frossl_loss",
    "hints_of",
    "iso_loss",
    "ivne_loss",
    "lejepa_loss",
    "log_det_divergence",
    "matrixssl_loss",
    "mmcr_loss",
    "moco_loss",
    "petz_renyi_divergence",
    "renyi_variance",
    "simclr_loss",
    "simsiam_loss",
    "spectral_loss",
    "swav_loss",
    "tico_loss",
    "vicreg_loss",
    "visreg_loss",
    "von_neumann_divergence",
    "wmse_loss",
]
# end of names
