"""The named parts that objectives are composed of: D_inv + D_var over z of shape (V, N, D)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, get_args

import torch
from torch import Tensor

from frossl.errors import unknown

Normalization = Literal["centered", "columns", "rows"]
Views = Tensor | Sequence[Tensor]


def full_precision(z: Tensor) -> AbstractContextManager[None]:
    """No autocast inside: squared norms of N × D numbers do not fit half precision."""
    return torch.autocast(z.device.type, enabled=False)


def as_views(z: Views) -> Tensor:
    """One float32 or float64 tensor (V, N, D) from a tensor or a list of V tensors (N, D)."""
    if not isinstance(z, Tensor):
        shapes = [tuple(view.shape) for view in z]
        if len(set(shapes)) > 1:
            raise ValueError(f"views differ in shape: {shapes}; every view must be (N, D)")
        z = torch.stack(list(z)) if shapes else torch.empty(0)
    if z.ndim != 3 or z.shape[0] < 2 or z.shape[1] < 2:
        raise ValueError(f"z has shape {tuple(z.shape)}; expected (V, N, D) with V ≥ 2 and N ≥ 2")
    if not z.is_floating_point():
        raise ValueError(f"z has dtype {z.dtype}; expected floating point")
    return z if z.dtype == torch.float64 else z.float()


def normalize(z: Tensor, how: Normalization) -> Tensor:
    """`centered`: mean over images subtracted, then unit columns. `columns`, `rows`: unit length as it is.

    A column whose spread is within rounding of zero, or a row of zeros, stays (almost) zero: never NaN.
    """
    if how not in get_args(Normalization):
        raise unknown("normalization", how, get_args(Normalization))
    axis = 2 if how == "rows" else 1
    squares = z.square().sum(axis, keepdim=True)
    floor = torch.full_like(squares, 1e-24)
    if how == "centered":
        # a column below this is constant: what subtracting its mean leaves is rounding error
        floor = floor.maximum((4 * torch.finfo(z.dtype).eps) ** 2 * squares.detach())
        z = z - z.mean(1, keepdim=True)
        squares = z.square().sum(axis, keepdim=True)
    return z / squares.maximum(floor).sqrt()


def distance_to_mean(z: Tensor) -> Tensor:
    """Σ_v ‖z_v − z̄‖² = (1/V) Σ_{v<r} ‖z_v − z_r‖²: all pairs at a cost linear in V."""
    return (z - z.mean(0)).square().sum()


def concentration(z: Tensor) -> Tensor:
    """‖C_v‖²_F of the unit-trace covariance C_v, one number a view: 1 / effective rank, in [1/min(N, D), 1].

    The Gram matrix has the same Frobenius norm as the covariance: the smaller of the two is formed.
    Views without any spread count as rank 1.
    """
    _, N, D = z.shape
    gram = z.mT @ z if N > D else z @ z.mT
    trace = z.square().sum((1, 2))
    tiny: float = torch.finfo(z.dtype).tiny ** 0.5
    return (gram.square().sum((1, 2)) + tiny) / (trace.square() + tiny)
