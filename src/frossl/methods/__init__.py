"""Methods: what one step computes. A method owns its networks; an objective only sees projections."""

from __future__ import annotations

from typing import NamedTuple

from frossl import objectives as losses
from frossl.methods.dino import DINO
from frossl.methods.joint import JointEmbedding
from frossl.methods.predicting import BYOL, MatrixSSL, Momentum, SimSiam
from frossl.methods.swav import SwAV


class Method(NamedTuple):
    """What a name stands for."""

    networks: type[JointEmbedding]
    objective: type[losses.Objective]


METHODS: dict[str, Method] = {
    "frossl": Method(JointEmbedding, losses.FroSSLLoss),
    "vicreg": Method(JointEmbedding, losses.VICRegLoss),
    "barlow": Method(JointEmbedding, losses.BarlowTwinsLoss),
    "wmse": Method(JointEmbedding, losses.WMSELoss),
    "corinfomax": Method(JointEmbedding, losses.CorInfoMaxLoss),
    "ivne": Method(JointEmbedding, losses.IVNELoss),
    "mmcr": Method(JointEmbedding, losses.MMCRLoss),
    "simclr": Method(JointEmbedding, losses.SimCLRLoss),
    "moco": Method(Momentum, losses.MoCoLoss),
    "swav": Method(SwAV, losses.SwAVLoss),
    "simsiam": Method(SimSiam, losses.SimSiamLoss),
    "byol": Method(BYOL, losses.BYOLLoss),
    "dino": Method(DINO, losses.DINOLoss),
    "tico": Method(Momentum, losses.TiCoLoss),
    "empssl": Method(JointEmbedding, losses.EMPSSLLoss),
    "matrixssl": Method(MatrixSSL, losses.MatrixSSLLoss),
    "spectral": Method(JointEmbedding, losses.SpectralContrastiveLoss),
    "iso": Method(Momentum, losses.IsoLoss),
    "lejepa": Method(JointEmbedding, losses.LeJEPALoss),
    "visreg": Method(JointEmbedding, losses.VISRegLoss),
}
"""Every method by its name: its networks and its objective."""

__all__ = ["BYOL", "DINO", "METHODS", "JointEmbedding", "MatrixSSL", "Method", "Momentum", "SimSiam", "SwAV"]
