"""Methods: what one step computes. A method owns its networks; an objective only sees projections."""

from __future__ import annotations

from frossl.methods.dino import DINO
from frossl.methods.joint import JointEmbedding
from frossl.methods.predicting import BYOL, MatrixSSL, Momentum, SimSiam
from frossl.methods.swav import SwAV

METHODS: dict[str, type[JointEmbedding]] = {
    "frossl": JointEmbedding,
    "vicreg": JointEmbedding,
    "barlow": JointEmbedding,
    "wmse": JointEmbedding,
    "corinfomax": JointEmbedding,
    "ivne": JointEmbedding,
    "mmcr": JointEmbedding,
    "simclr": JointEmbedding,
    "empssl": JointEmbedding,
    "spectral": JointEmbedding,
    "lejepa": JointEmbedding,
    "visreg": JointEmbedding,
    "simsiam": SimSiam,
    "byol": BYOL,
    "matrixssl": MatrixSSL,
    "moco": Momentum,
    "tico": Momentum,
    "iso": Momentum,
    "swav": SwAV,
    "dino": DINO,
}
"""Every method by its name; its objective has the same name."""

__all__ = ["BYOL", "DINO", "METHODS", "JointEmbedding", "MatrixSSL", "Momentum", "SimSiam", "SwAV"]
