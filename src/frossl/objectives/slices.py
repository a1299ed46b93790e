"""Random directions for losses on one-dimensional slices of the projections."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.objectives.terms import unit


def directions(slices: int | Tensor, z: Tensor, rng: torch.Generator | None) -> Tensor:
    """Return slice directions as columns (D, K).

    Args:
        slices: Number K of random unit directions, or the directions themselves (D, K).
        z: Projections, for their width D, precision and device.
        rng: Generator of the random directions; None for torch's default.

    Raises:
        ValueError: If the directions have another shape, or K is less than 1.
    """
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
