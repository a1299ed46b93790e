"""FroSSL's value and gradient in closed form: two matrix products a view instead of autograd's three.

With unit rows or columns u the trace of the covariance is constant, and so is the radial part of every
gradient: what is left, before it goes back through the normalization, is

    ∂L/∂u_v = 4b · u_v(u_vᵀu_v) / ‖u_vᵀu_v‖²_F  −  (2wV/N) · ū        (log; 1/tr² in place of 1/‖·‖² without)

Views are taken one by one, in place, because passes over memory cost more than arithmetic here, and fresh
memory the most. Measured in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from frossl.objectives.terms import Normalization, inverse_length, rounding

PANELS = 4
SMALLEST_PANEL = 64


class Fused(NamedTuple):
    """The terms of the loss; only `total` carries gradient."""

    total: Tensor
    invariance: Tensor
    variance: Tensor
    effective_rank: Tensor


def fused_frossl(
    views: Sequence[Tensor],
    *,
    invariance_weight: float,
    variance_weight: float,
    normalize: Normalization,
    log: bool,
) -> Fused:
    """The loss of V tensors (N, D), with its gradient computed beside it if any of them wants one."""
    return Fused(*_FroSSL.apply(invariance_weight, variance_weight, normalize, log, *views))


class _FroSSL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, w: float, b: float, how: Normalization, log: bool, *views: Tensor) -> tuple[Tensor, ...]:
        V, N = len(views), len(views[0])
        units, inverses = zip(*(_normalized(z, how) for z in views), strict=True)
        mean = torch.mul(units[0], 1 / V)
        for u in units[1:]:
            mean.add_(u, alpha=1 / V)
        scratch = torch.empty_like(mean)
        distances, spreads, gradients = [], [], []
        for u, inverse in zip(units, inverses, strict=True):
            torch.sub(u, mean, out=scratch)
            distances.append(torch.dot(scratch.view(-1), scratch.view(-1)))
            matrix = _gram(u)
            tiny: float = torch.finfo(u.dtype).tiny ** 0.5
            norm = torch.dot(matrix.view(-1), matrix.view(-1)) + tiny
            trace = (inverse > 0).sum().to(u).square() + tiny
            spreads.append(norm / trace)
            if any(ctx.needs_input_grad):
                matrix.mul_(4 * b / (norm if log else trace))
                gradient = _times(u, matrix, mean, beta=-2 * w * V / N)
                torch.mul(u, gradient, out=scratch)
                radial = scratch.sum(1 if how == "rows" else 0, keepdim=True)
                gradients.append(gradient.addcmul_(u, radial, value=-1))
        ctx.save_for_backward(*gradients, *inverses)
        spread = torch.stack(spreads)
        invariance = torch.stack(distances).sum() * (w * V / N)
        variance = (spread.log() if log else spread).sum() * b
        ctx.mark_non_differentiable(invariance, variance, rank := spread.reciprocal().mean())
        return invariance + variance, invariance, variance, rank

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        V = len(saved) // 2
        scaled = (g * (inverse * gradient) for g, inverse in zip(saved[:V], saved[V:], strict=True))
        return None, None, None, None, *scaled


def _normalized(z: Tensor, how: Normalization) -> tuple[Tensor, Tensor]:
    """Unit rows or columns, and what they were multiplied by: the same as `terms.normalize`."""
    if how != "centered":
        inverse = inverse_length(z.square().sum(1 if how == "rows" else 0, keepdim=True))
        return z * inverse, inverse
    mean = z.mean(0, keepdim=True)
    u = z - mean
    squares = u.square().sum(0, keepdim=True)
    inverse = inverse_length(squares, rounding(squares + len(z) * mean.square(), z))
    return u.mul_(inverse), inverse


def _gram(u: Tensor) -> Tensor:
    """uuᵀ or uᵀu, whichever is smaller. On the CPU only the panels on and above the diagonal are computed."""
    rows = u if u.shape[0] <= u.shape[1] else u.T
    side = len(rows)
    if u.device.type != "cpu" or side < PANELS * SMALLEST_PANEL:
        return rows @ rows.T
    matrix = u.new_empty(side, side)
    bounds = [side * k // PANELS for k in range(PANELS + 1)]
    for start, stop in zip(bounds, bounds[1:], strict=False):
        panel = matrix[start:stop, start:]
        torch.mm(rows[start:stop], rows[start:].T, out=panel)
        matrix[stop:, start:stop] = panel[:, stop - start :].T
    return matrix


def _times(u: Tensor, matrix: Tensor, mean: Tensor, *, beta: float) -> Tensor:
    """The Gram matrix times u, from the side that fits, plus beta · mean."""
    left, right = (matrix, u) if u.shape[0] <= u.shape[1] else (u, matrix)
    return torch.addmm(mean, left, right, beta=beta)
