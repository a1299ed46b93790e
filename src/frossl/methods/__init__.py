"""Methods: the forward pass and loss of one step.

A method owns its networks; an objective only sees projections.
"""

from __future__ import annotations

from typing import NamedTuple

from frossl.methods.base import Method
from frossl.methods.dino import DINO
from frossl.methods.momentum import BYOL, MatrixSSL, Momentum, SimSiam
from frossl.methods.swav import SwAV
from frossl.objectives import OBJECTIVES, Objective


class MethodEntry(NamedTuple):
    """Networks and objective of a named method."""

    networks: type[Method]
    objective: type[Objective]


NETWORKS: dict[str, type[Method]] = {
    "moco": Momentum,
    "swav": SwAV,
    "simsiam": SimSiam,
    "byol": BYOL,
    "dino": DINO,
    "tico": Momentum,
    "matrixssl": MatrixSSL,
    "iso": Momentum,
}
"""Networks of the methods that have more than backbone and projector."""

METHODS: dict[str, MethodEntry] = {
    name: MethodEntry(NETWORKS.get(name, Method), objective) for name, objective in OBJECTIVES.items()
}
"""All methods by name: every objective with its networks."""

__all__ = ["BYOL", "DINO", "METHODS", "MatrixSSL", "Method", "MethodEntry", "Momentum", "SimSiam", "SwAV"]
