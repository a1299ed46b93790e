"""Random directions, for losses that look at projections through one-dimensional slices."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.objectives.terms import unit


def directions(slices: int | Tensor, z: Tensor, rng: torch.Generator | None) -> Tensor:
    """Unit columns (D, K): K of them drawn with `rng`, or those that are given."""
    D = z.shape[-1]
    if isinstance(slices, Tensor):
        if slices.ndim != 2 or slices.shape[0] != D:
            raise ValueError(
                f"slices have shape {tuple(slices.shape)}; expected ({D}, K) as z has {tuple(z.shape)}"
            )
        return slices.detach().to(z)
    if slices < 1:
        raise ValueError(f"slices is {slices}; expected at least 1")
    device = z.device if rng is None else rng.device
    return unit(torch.randn(D, slices, generator=rng, device=device, dtype=z.dtype), dim=0).to(z.device)
