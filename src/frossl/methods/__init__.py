"""Methods: the forward pass and loss of one step.

A method owns its networks; an objective only sees projections.
"""

from __future__ import annotations

from typing import NamedTuple

from frossl import objectives as losses
from frossl.methods.base import Method
from frossl.methods.dino import DINO
from frossl.methods.momentum import BYOL, MatrixSSL, Momentum, SimSiam
from frossl.methods.swav import SwAV


class MethodEntry(NamedTuple):
    """Networks and objective of a named method."""

    networks: type[Method]
    objective: type[losses.Objective]


METHODS: dict[str, MethodEntry] = {
    "frossl": MethodEntry(Method, losses.FroSSLLoss),
    "vicreg": MethodEntry(Method, losses.VICRegLoss),
    "barlow": MethodEntry(Method, losses.BarlowTwinsLoss),
    "wmse": MethodEntry(Method, losses.WMSELoss),
    "corinfomax": MethodEntry(Method, losses.CorInfoMaxLoss),
    "ivne": MethodEntry(Method, losses.IVNELoss),
    "mmcr": MethodEntry(Method, losses.MMCRLoss),
    "simclr": MethodEntry(Method, losses.SimCLRLoss),
    "moco": MethodEntry(Momentum, losses.MoCoLoss),
    "swav": MethodEntry(SwAV, losses.SwAVLoss),
    "simsiam": MethodEntry(SimSiam, losses.SimSiamLoss),
    "byol": MethodEntry(BYOL, losses.BYOLLoss),
    "dino": MethodEntry(DINO, losses.DINOLoss),
    "tico": MethodEntry(Momentum, losses.TiCoLoss),
    "empssl": MethodEntry(Method, losses.EMPSSLLoss),
    "matrixssl": MethodEntry(MatrixSSL, losses.MatrixSSLLoss),
    "spectral": MethodEntry(Method, losses.SpectralContrastiveLoss),
    "iso": MethodEntry(Momentum, losses.IsoLoss),
    "lejepa": MethodEntry(Method, losses.LeJEPALoss),
    "visreg": MethodEntry(Method, losses.VISRegLoss),
}
"""All methods by name."""

__all__ = ["BYOL", "DINO", "METHODS", "MatrixSSL", "Method", "MethodEntry", "Momentum", "SimSiam", "SwAV"]
