"""The named parts that objectives are composed of: L = D_inv + D_var over z of shape (V, N, D).

Normalizations of z, invariance terms between its views, variance terms of each view, and the spread of a
spectrum. All are sums that are linear in V: pairs of views are taken through their mean.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from frossl.errors import unknown

Normalization = Literal["centered", "columns", "rows"]


# normalizations


def center(z: Tensor) -> Tensor:
    """The mean over images subtracted."""
    return z - z.mean(-2, keepdim=True)


def inverse_root(x: Tensor) -> Tensor:
    """1/√x of positive numbers; NaN where x is infinite: it did not fit, and 0 would pass for a number.

    The gradient, −½ x^(−3/2), would vanish below float32 from 1e25 on: such x are scaled by a power of two.
    """
    scale = torch.where(x.detach() > 1e24, 2.0**-60, 1.0).to(x)
    return (x.masked_fill(x == torch.inf, torch.nan) * scale.square()).rsqrt() * scale


def inverse_length(squares: Tensor, floor: Tensor | float = 1e-24) -> Tensor:
    """1/√squares; 0, with gradient 0, where `squares` is not above `floor`: no length, no direction.

    NaN where squares, or those that the floor was made of, are infinite.
    """
    lost = squares.detach().clamp_min(floor) == torch.inf
    there = (squares > floor) | lost
    return there * inverse_root(torch.where(there, squares, 1.0).masked_fill(lost, torch.nan))


def unit(z: Tensor, dim: int = -1) -> Tensor:
    """Unit length along `dim`; zero stays zero, with gradient zero."""
    return z * inverse_length(z.square().sum(dim, keepdim=True))


def rounding(squares: Tensor, z: Tensor) -> Tensor:
    """The squared length below which a centered column is the rounding error of a constant one."""
    return (squares * (4 * torch.finfo(z.dtype).eps) ** 2).clamp_min(1e-24)


def normalize(z: Tensor, how: Normalization) -> Tensor:
    """`centered`: mean over images subtracted, then unit columns. `columns`, `rows`: unit length as it is.

    A constant column and a row of zeros become zero and get no gradient: never NaN.
    """
    check_normalization(how)
    if how != "centered":
        return unit(z, -1 if how == "rows" else -2)
    floor = rounding(z.detach().square().sum(-2, keepdim=True), z)
    z = center(z)
    return z * inverse_length(z.square().sum(-2, keepdim=True), floor)


def check_normalization(how: str) -> None:
    if how not in get_args(Normalization):
        raise unknown("normalization", how, get_args(Normalization))


def standardize(z: Tensor, *, eps: float) -> Tensor:
    """BatchNorm without affine: biased variance, eps inside the root."""
    z = center(z)
    return z * inverse_root(z.square().mean(-2, keepdim=True) + eps)


def covariance(z: Tensor) -> Tensor:
    """Unbiased, (V, D, D)."""
    z = center(z)
    return z.mT @ z / (z.shape[-2] - 1)


def whiten(z: Tensor, *, eps: float) -> Tensor:
    """Centered, then multiplied by L⁻ᵀ of (1 − eps)·cov + eps·I = LLᵀ: covariance I where eps = 0.

    The diagonal is raised by rounding error, so that collapsed images can be factored too.
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
    """Σ_v ‖z_v − z̄‖² = (1/V) Σ_{v<r} ‖z_v − z_r‖²: all pairs at a cost linear in V."""
    return (z - z.mean(0)).square().sum()


def mse_between_pairs(z: Tensor) -> Tensor:
    """mean_{v<r} of the mean squared difference of z_v and z_r, at a cost linear in V."""
    V, N, D = z.shape
    return distance_to_mean(z) * (2 / ((V - 1) * N * D))


def mse_to_global_mean(z: Tensor, global_views: int | None = None) -> Tensor:
    """Mean squared difference to the mean of the first `global_views` views (all, if None)."""
    return (z - z[:global_views].mean(0)).square().mean()


def cosine_between_pairs(z: Tensor, global_views: int | None = None) -> Tensor:
    """Mean cosine of rows over pairs of views v < r with v among the first `global_views`; linear in V."""
    V, N, _ = z.shape
    count = V if global_views is None else min(global_views, V)
    u = unit(z)
    leading, others = u[:count].sum(0), u[count:].sum(0)
    within = (leading.square().sum() - u[:count].square().sum()) / 2
    return (within + (leading * others).sum()) / (N * (count * (count - 1) / 2 + count * (V - count)))


def sum_of_later(z: Tensor) -> Tensor:
    """(V − 1, N, D): for each view but the last, the sum of those after it; linear in V."""
    return z.flip(0).cumsum(0).flip(0)[1:]


def cosine_to_others(p: Tensor, target: Tensor) -> Tensor:
    """Mean cosine of rows over pairs of views v ≠ r, prediction v with target r; linear in V.

    target: (V_t, N, D), of the first V_t of the V views in p.
    """
    V, N, _ = p.shape
    count = len(target)
    p, target = unit(p), unit(target)
    every = (p.sum(0) * target.sum(0)).sum()
    return (every - (p[:count] * target).sum()) / (N * count * (V - 1))


def cross_entropy_to_others(log_p: Tensor, target: Tensor) -> Tensor:
    """Mean over targets c and views v ≠ c of −Σ_k target_c log p_v, averaged over images, linear in V.

    target: (V_t, N, K), the distributions of the first V_t views of log_p (V, N, K).
    """
    V, N, _ = log_p.shape
    count = len(target)
    every = (log_p.sum(0) * target.sum(0)).sum()
    return ((log_p[:count] * target).sum() - every) / (N * count * (V - 1))


# variance


def hinge_on_deviation(z: Tensor, *, eps: float) -> Tensor:
    """mean over columns of max(0, 1 − √(Var + eps)), one number a view; unbiased variance."""
    deviation = (center(z).square().sum(-2) / (z.shape[-2] - 1) + eps).sqrt()
    return (1 - deviation).relu().mean(-1)


def off_diagonal(matrix: Tensor) -> Tensor:
    """Σ_{i≠j} of the squared entries, one number a matrix."""
    return matrix.square().sum((-2, -1)) - matrix.diagonal(dim1=-2, dim2=-1).square().sum(-1)


def gram(z: Tensor) -> Tensor:
    """zᵀz or zzᵀ, whichever is smaller: both have the same nonzero eigenvalues."""
    return z.mT @ z if z.shape[-2] > z.shape[-1] else z @ z.mT


def unit_trace(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices divided by their trace, and which of them have one."""
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    there = trace > torch.finfo(matrix.dtype).tiny
    return matrix / torch.where(there, trace, 1.0)[..., None, None], there


def concentration(z: Tensor) -> Tensor:
    """‖C_v‖²_F of the unit-trace covariance of each view: 1 / effective rank, in [1/min(N, D), 1]."""
    return concentration_of(gram(z))


def concentration_of(matrix: Tensor) -> Tensor:
    """The same of Gram matrices or covariances. Without any spread the rank counts as 1."""
    share, there = unit_trace(matrix)
    return torch.where(there, share.square().sum((-2, -1)), 1.0)


def effective_rank(matrix: Tensor) -> Tensor:
    """tr(C)² / ‖C‖²_F of Gram matrices or covariances, the participation ratio of eigenvalues; their mean."""
    return concentration_of(matrix.detach()).reciprocal().mean()
