"""Value and gradient of FroSSL in closed form: two matrix products a view instead of autograd's three.

With unit rows or columns u the trace of the covariance is constant, and the backward pass of the
normalization removes the part of the gradient along u. Without it the gradient with respect to u is

    ∂L/∂u_v = 4b · u_v(u_vᵀu_v) / ‖u_vᵀu_v‖²_F  −  (2w/N) · Σ_r u_r        (without log: 1/tr² for 1/‖·‖²)

Views are processed one by one and in place, because passes over memory cost more than arithmetic here, and
new allocations the most (measured in docs/decisions.md).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from frossl.objectives.contract import as_views, full_precision
from frossl.objectives.terms import (
    Normalization,
    concentration,
    distance_to_mean,
    inverse_length,
    normalize,
    rounding,
)

GRAM_PANELS = 4
"""Number of panels that a Gram matrix is computed in, to skip those below the diagonal."""
MIN_PANEL_ROWS = 64
"""Fewest rows of a panel; smaller matrices are computed at once."""
KEPT_BYTES = 2**25
"""Most scratch memory that a thread keeps for its next call; for larger views the products decide."""

_kept = threading.local()


class Fused(NamedTuple):
    """Terms of the loss; only `total` carries gradient."""

    total: Tensor
    invariance: Tensor
    variance: Tensor
    effective_rank: Tensor


def fused_frossl(
    z: Tensor | Sequence[Tensor],
    *,
    invariance_weight: float,
    variance_weight: float,
    normalize: Normalization,
    log: bool,
) -> Fused:
    """Compute the loss of (V, N, D) or of V tensors (N, D), and its gradient if needed; see `frossl_loss`."""
    views = (z,) if isinstance(z, Tensor) else z
    options = (invariance_weight, variance_weight, normalize, log)
    if torch.is_grad_enabled():
        return Fused(*_FroSSL.apply(*options, *views))
    return Fused(*_terms_and_gradients(*options, views, need_gradient=False)[0])


class _FroSSL(torch.autograd.Function):
    """Loss of one tensor (V, N, D), or of V tensors (N, D)."""

    @staticmethod
    def forward(
        ctx: Any, w: float, b: float, how: Normalization, log: bool, *z: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.options = (w, b, how, log)
        ctx.save_for_backward(*z)
        terms, ctx.gradients = _terms_and_gradients(
            w, b, how, log, z, need_gradient=any(ctx.needs_input_grad)
        )
        ctx.mark_non_differentiable(*terms[1:])
        return terms

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # the gradient will be differentiated (create_graph)
            need_gradient = ctx.needs_input_grad[4:]
            return (
                None,
                None,
                None,
                None,
                *_by_autograd(ctx.options, ctx.saved_tensors, need_gradient, gradient),
            )
        # scaled in place, without a copy; a second backward pass recomputes them
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            w, b, how, log = ctx.options
            _, gradients = _terms_and_gradients(w, b, how, log, ctx.saved_tensors, need_gradient=True)
        return None, None, None, None, *(g.mul_(inverse * gradient) for g, inverse in gradients)


def _by_autograd(
    options: tuple[float, float, Normalization, bool],
    z: Sequence[Tensor],
    need_gradient: Sequence[bool],
    gradient: Tensor,
) -> list[Tensor | None]:
    """Compute the gradient by autograd from the definition of the loss, so that it is differentiable."""
    w, b, how, log = options
    with full_precision(z[0]):
        unit = normalize(z[0] if len(z) == 1 else as_views(z), how)
        spread = concentration(unit)
        total = b * (spread.log() if log else spread).sum()
        total = total + w * len(unit) / unit.shape[1] * distance_to_mean(unit)
        inputs = [x for x, needed in zip(z, need_gradient, strict=True) if needed]
        found = iter(torch.autograd.grad(total, inputs, gradient, create_graph=True))
    return [next(found) if needed else None for needed in need_gradient]


def _terms_and_gradients(
    w: float, b: float, how: Normalization, log: bool, z: Sequence[Tensor], *, need_gradient: bool
) -> tuple[tuple[Tensor, ...], list[tuple[Tensor, Tensor]]]:
    """Compute the loss, its parts and the rank, and for each tensor the gradient as two factors."""
    # BatchNorm's kernel does not write its moments for other layouts; contiguous views are not copied
    views = [view.contiguous() for view in (z[0].unbind() if len(z) == 1 else z)]
    V, (N, D) = len(views), views[0].shape
    results = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in z]
    units = results[0].unbind() if len(z) == 1 else results
    along = 1 if how == "rows" else 0
    with _scratch_memory(views[0]) as (scratch, product, total, matrix):
        inverses = _normalize(views, how, scratch, out=units)
        torch.add(units[0], units[1], out=total)
        for u in units[2:]:
            total.add_(u)
        norms = total.new_empty(V)
        lengths = inverses.count_nonzero((1, 2)).to(total)  # of unit rows or columns: the trace
        tiny: float = torch.finfo(total.dtype).tiny ** 0.5
        squared = torch.dot(total.view(-1), total.view(-1))
        for u, norm, length in zip(units, norms.unbind(), lengths.unbind(), strict=True):
            _gram(u, out=matrix)
            torch.dot(matrix.view(-1), matrix.view(-1), out=norm)
            if need_gradient:
                matrix.mul_(4 * b / ((norm if log else length.square()) + tiny))
                left, right = (matrix, u) if N <= D else (u, matrix)
                torch.addmm(total, left, right, beta=-2 * w / N, out=product)
                radial = torch.mul(u, product, out=scratch).sum(along, keepdim=True)
                torch.addcmul(product, u, radial, value=-1, out=u)  # from here on u is the gradient
    spread = (norms + tiny) / (lengths.square() + tiny)
    # Σ_v ‖u_v − ū‖² = Σ_v ‖u_v‖² − ‖Σ_v u_v‖²/V, without a pass over every view; for nearly equal views the
    # difference is rounding error, in the value only
    distance = lengths.sum() - squared / V
    invariance = distance.clamp_min(0) * (w * V / N)
    variance = (spread.log() if log else spread).sum() * b
    factors = [inverses] if len(z) == 1 else inverses.unbind()
    return (
        (invariance + variance, invariance, variance, spread.reciprocal().mean()),
        list(zip(results, factors, strict=True)) if need_gradient else [],
    )


@contextmanager
def _scratch_memory(view: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Lend three uninitialized buffers like the view, and one for its Gram matrix.

    On the CPU a thread gets the same ones in its next call, because page faults of fresh memory cost more
    than all passes over small views. While they are lent, nobody else gets them.
    """
    (N, D), side = view.shape, min(view.shape)
    shared = type(view) is Tensor and view.device.type == "cpu"  # fake tensors and the like have their own
    key, buffers = f"{view.dtype} {N} {D}", None
    if shared:
        buffers = vars(_kept).pop(key, None)
    if buffers is None:
        with torch.inference_mode(mode=False):  # of a tensor made there, no other mode could write to
            buffers = (*view.new_empty(3, N, D).unbind(), view.new_empty(side, side))
    yield buffers
    if shared and (3 * N * D + side**2) * view.itemsize <= KEPT_BYTES:
        vars(_kept).clear()
        vars(_kept)[key] = buffers


def _normalize(views: Sequence[Tensor], how: Normalization, scratch: Tensor, out: Sequence[Tensor]) -> Tensor:
    """Write the views, normalized as by `terms.normalize`, to `out`; return the inverse lengths."""
    if how == "centered":
        if (inverses := _batch_normalize(views, out)) is not None:
            return inverses
        for z, u in zip(views, out, strict=True):
            torch.sub(z, z.mean(0, keepdim=True), out=u)
    along = 1 if how == "rows" else 0
    raw = torch.stack([torch.square(z, out=scratch).sum(along, keepdim=True) for z in views])
    if how == "centered":
        squares = torch.stack([torch.square(u, out=scratch).sum(0, keepdim=True) for u in out])
        inverses = inverse_length(squares, rounding(raw, raw))
        views = out
    else:
        inverses = inverse_length(raw)
    for z, inverse, u in zip(views, inverses.unbind(), out, strict=True):
        torch.mul(z, inverse, out=u)
    return inverses


def _batch_normalize(views: Sequence[Tensor], out: Sequence[Tensor]) -> Tensor | None:
    """Write centered unit columns by BatchNorm's CPU kernel, in half the passes; None if it is not exact.

    The kernel computes x/σ − μ/σ, whose rounding error grows with μ/σ: columns that vary little, and tiny or
    huge ones, are left to the caller.
    """
    N, D = views[0].shape
    if views[0].device.type != "cpu":
        return None  # the check for exactness would synchronize with the device
    scale = views[0].new_full((D,), N**-0.5)
    moments = scale.new_empty(2, len(views), D)
    for v, (z, u) in enumerate(zip(views, out, strict=True)):
        torch.native_batch_norm(
            z, scale, None, None, None, True, 0.0, 1e-24, out=(u, moments[0, v], moments[1, v])
        )
    means, inverses = moments.unsqueeze(2)
    exact = ((means * inverses).abs() < 30) & (inverses > 1e-30) & (inverses < 1e7)
    return inverses * N**-0.5 if exact.all() else None


def _gram(u: Tensor, out: Tensor) -> None:
    """Write uuᵀ or uᵀu, the smaller one; on the CPU only panels on and above the diagonal are computed."""
    rows = u if u.shape[0] <= u.shape[1] else u.T
    side = len(rows)
    if u.device.type != "cpu" or side < GRAM_PANELS * MIN_PANEL_ROWS:
        torch.mm(rows, rows.T, out=out)
        return
    bounds = [side * k // GRAM_PANELS for k in range(GRAM_PANELS + 1)]
    for start, stop in pairwise(bounds):
        panel = out[start:stop, start:]
        torch.mm(rows[start:stop], rows[start:].T, out=panel)
        out[stop:, start:stop] = panel[:, stop - start :].T
