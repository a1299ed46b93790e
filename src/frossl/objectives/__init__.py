"""Objectives: pure functions from projections (V, N, D) to LossTerms, without communication or logging."""

from __future__ import annotations

from frossl.objectives.barlow import BarlowTwinsLoss, barlow_loss
from frossl.objectives.byol import BYOLLoss, byol_loss
from frossl.objectives.contract import Objective, hints_of
from frossl.objectives.corinfomax import CorInfoMaxLoss, corinfomax_loss
from frossl.objectives.dino import DINOLoss, dino_loss
from frossl.objectives.empssl import EMPSSLLoss, empssl_loss
from frossl.objectives.frossl import FroSSLLoss, frossl_loss
from frossl.objectives.iso import IsoLoss, iso_loss
from frossl.objectives.ivne import IVNELoss, ivne_loss
from frossl.objectives.lejepa import LeJEPALoss, lejepa_loss
from frossl.objectives.matrixssl import MatrixSSLLoss, matrixssl_loss
from frossl.objectives.mmcr import MMCRLoss, mmcr_loss
from frossl.objectives.moco import MoCoLoss, moco_loss
from frossl.objectives.simclr import SimCLRLoss, simclr_loss
from frossl.objectives.simsiam import SimSiamLoss, simsiam_loss
from frossl.objectives.spectra import (
    log_det_divergence,
    petz_renyi_divergence,
    renyi_variance,
    von_neumann_divergence,
)
from frossl.objectives.spectral import SpectralContrastiveLoss, spectral_loss
from frossl.objectives.swav import SwAVLoss, swav_loss
from frossl.objectives.tico import TiCoLoss, tico_loss
from frossl.objectives.vicreg import VICRegLoss, vicreg_loss
from frossl.objectives.visreg import VISRegLoss, visreg_loss
from frossl.objectives.wmse import WMSELoss, wmse_loss

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
