"""The only place where processes exchange projections."""

from __future__ import annotations

from torch import Tensor


def gather(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The global batch of every tensor. frossl runs on one process so far, where that is the batch itself."""
    return tensors
