"""The only place where processes exchange projections."""

from __future__ import annotations

import torch
from torch import Tensor


def gather(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The global batch of every tensor, in float32 or wider.

    frossl runs on one process so far, where the global batch is the batch itself.
    """
    return {name: x if x.dtype == torch.float64 else x.float() for name, x in tensors.items()}
