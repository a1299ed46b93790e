"""Building blocks of objectives L = D_inv + D_var over z of shape (V, N, D).

These are normalizations of z, invariance terms between its views, variance terms of each view, and measures
of the spread of a spectrum. All cost time linear in V: sums over pairs of views are computed from the mean.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from frossl.errors import unknown

Normalization = Literal["centered", "columns", "rows"]
"""Normalization of projections; see `normalize`."""


# normalizations


def center(z: Tensor) -> Tensor:
    """Subtract the mean over images."""
    return z - z.mean(-2, keepdim=True)


def inverse_root(x: Tensor) -> Tensor:
    """Return 1/√x of positive numbers; NaN where x is infinite, because 0 would hide the overflow.

    The gradient −½ x^(−3/2) would underflow float32 from x = 1e25 on: such x are scaled by a power of two.
    """
    scale = torch.where(x.detach() > 1e24, 2.0**-60, 1.0).to(x)
    return (x.masked_fill(x == torch.inf, torch.nan) * scale.square()).rsqrt() * scale


def inverse_length(squares: Tensor, floor: Tensor | float = 1e-24) -> Tensor:
    """Return 1/√squares; 0, with gradient 0, where `squares` is not above `floor`.

    It is NaN where `squares` or `floor` is infinite.
    """
    overflowed = squares.detach().clamp_min(floor) == torch.inf
    nonzero = (squares > floor) | overflowed
    return nonzero * inverse_root(torch.where(nonzero, squares, 1.0).masked_fill(overflowed, torch.nan))


def unit(z: Tensor, dim: int = -1) -> Tensor:
    """Scale to unit length along `dim`; zero vectors stay zero, with gradient zero."""
    return z * inverse_length(z.square().sum(dim, keepdim=True))


def rounding(squares: Tensor, z: Tensor) -> Tensor:
    """Return the squared length below which a centered column is the rounding error of a constant one."""
    return (squares * (4 * torch.finfo(z.dtype).eps) ** 2).clamp_min(1e-24)


def normalize(z: Tensor, how: Normalization) -> Tensor:
    """Normalize projections.

    Constant columns and zero rows become zero and get no gradient, never NaN.

    Args:
        z: Projections (V, N, D).
        how: `centered` subtracts the mean over images and scales columns to unit length; `columns` and `rows`
            scale to unit length without centering.
    """
    check_normalization(how)
    if how != "centered":
        return unit(z, -1 if how == "rows" else -2)
    floor = rounding(z.detach().square().sum(-2, keepdim=True), z)
    z = center(z)
    return z * inverse_length(z.square().sum(-2, keepdim=True), floor)


def check_normalization(how: str) -> None:
    """Raise an InputError for an unknown normalization."""
    if how not in get_args(Normalization):
        raise unknown("normalization", how, get_args(Normalization))


def standardize(z: Tensor, *, eps: float) -> Tensor:
    """Standardize columns as BatchNorm without affine does: biased variance, eps inside the root."""
    z = center(z)
    return z * inverse_root(z.square().mean(-2, keepdim=True) + eps)


def covariance(z: Tensor) -> Tensor:
    """Return the unbiased covariance (V, D, D) of each view."""
    z = center(z)
    return z.mT @ z / (z.shape[-2] - 1)


def whiten(z: Tensor, *, eps: float) -> Tensor:
    """Center z and multiply it by L⁻ᵀ, where LLᵀ = (1 − eps)·cov + eps·I: covariance I if eps = 0.

    The diagonal is raised by the rounding error, so that collapsed batches can be factorized too.
    """
    N, D = z.shape[-2:]
    z = center(z)
    matrix = (1 - eps) / (N - 1) * (z.mT @ z) + eps * torch.eye(D, dtype=z.dtype, device=z.device)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).detach()
    lift = (4 * D * torch.finfo(z.dtype).eps * diagonal).clamp_min(1e-24)
    factor, _ = torch.linalg.cholesky_ex(matrix + lift.diag_embed())
    white: Tensor = torch.linalg.solve_triangular(factor, z.mT, upper=False)
    return white.mT


# invariance


def distance_to_mean(z: Tensor) -> Tensor:
    """Return Σ_v ‖z_v − z̄‖² = (1/V) Σ_{v<r} ‖z_v − z_r‖²: all pairs at a cost linear in V."""
    return (z - z.mean(0)).square().sum()


def mse_between_pairs(z: Tensor) -> Tensor:
    """Return mean_{v<r} of the mean squared difference of z_v and z_r, at a cost linear in V."""
    V, N, D = z.shape
    return distance_to_mean(z) * (2 / ((V - 1) * N * D))


def mse_to_global_mean(z: Tensor, global_views: int | None = None) -> Tensor:
    """Return the mean squared difference to the mean of the first `global_views` views (all, if None)."""
    return (z - z[:global_views].mean(0)).square().mean()


def cosine_between_pairs(z: Tensor, global_views: int | None = None) -> Tensor:
    """Return the mean cosine of rows over pairs v < r with v among the first `global_views`; linear in V."""
    V, N, _ = z.shape
    count = V if global_views is None else min(global_views, V)
    u = unit(z)
    global_sum, others = u[:count].sum(0), u[count:].sum(0)
    within = (global_sum.square().sum() - u[:count].square().sum()) / 2
    return (within + (global_sum * others).sum()) / (N * (count * (count - 1) / 2 + count * (V - count)))


def sum_of_later(z: Tensor) -> Tensor:
    """Return (V − 1, N, D): for each view but the last, the sum of the views after it; linear in V."""
    return z.flip(0).cumsum(0).flip(0)[1:]


def cosine_to_others(p: Tensor, target: Tensor) -> Tensor:
    """Return the mean cosine of rows of prediction v and target r over views v ≠ r; linear in V.

    Args:
        p: Predictions (V, N, D).
        target: Targets (V_t, N, D) of the first V_t views.
    """
    V, N, _ = p.shape
    count = len(target)
    p, target = unit(p), unit(target)
    every = (p.sum(0) * target.sum(0)).sum()
    return (every - (p[:count] * target).sum()) / (N * count * (V - 1))


def cross_entropy_to_others(log_p: Tensor, target: Tensor) -> Tensor:
    """Return the mean over images, targets c and views v ≠ c of −Σ_k target_c log p_v; linear in V.

    Args:
        log_p: Log-probabilities (V, N, K).
        target: Distributions (V_t, N, K) of the first V_t views.
    """
    V, N, _ = log_p.shape
    count = len(target)
    every = (log_p.sum(0) * target.sum(0)).sum()
    return ((log_p[:count] * target).sum() - every) / (N * count * (V - 1))


# variance


def hinge_on_deviation(z: Tensor, *, eps: float) -> Tensor:
    """Return the mean over columns of max(0, 1 − √(Var + eps)) for each view, with unbiased variance."""
    deviation = (center(z).square().sum(-2) / (z.shape[-2] - 1) + eps).sqrt()
    return (1 - deviation).relu().mean(-1)


def off_diagonal(matrix: Tensor) -> Tensor:
    """Return Σ_{i≠j} of the squared entries of each matrix."""
    return matrix.square().sum((-2, -1)) - matrix.diagonal(dim1=-2, dim2=-1).square().sum(-1)


def gram(z: Tensor) -> Tensor:
    """Return the smaller of zᵀz and zzᵀ, which have the same nonzero eigenvalues."""
    return z.mT @ z if z.shape[-2] > z.shape[-1] else z @ z.mT


def unit_trace(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices divided by their trace, and which of them have a nonzero trace."""
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    nonzero = trace > torch.finfo(matrix.dtype).tiny
    return matrix / torch.where(nonzero, trace, 1.0)[..., None, None], nonzero


def concentration(z: Tensor) -> Tensor:
    """Return ‖C_v‖²_F of the unit-trace covariance of each view: 1 / effective rank, ≥ 1/min(N, D)."""
    return concentration_of(gram(z))


def concentration_of(matrix: Tensor) -> Tensor:
    """Return the `concentration` of Gram matrices or covariances; 1 for zero matrices."""
    share, nonzero = unit_trace(matrix)
    return torch.where(nonzero, share.square().sum((-2, -1)), 1.0)


def effective_rank(matrix: Tensor) -> Tensor:
    """Return the effective rank tr(C)² / ‖C‖²_F, the participation ratio of eigenvalues (mean over C).

    Args:
        matrix: Gram matrices or covariances C.
    """
    return concentration_of(matrix.detach()).reciprocal().mean()
