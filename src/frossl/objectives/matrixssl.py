"""Matrix-SSL (Zhang et al., ICML 2024, arXiv 2305.17326)."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from frossl.config import Count, NotNegative, Weight
from frossl.objectives.contract import Objective, Preset, Views, as_target, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import center, unit
from frossl.types import LossTerms


@objective
def matrixssl_loss(
    z: Tensor,
    *,
    target: Views | None = None,
    invariance_weight: Weight = 1.0,
    variance_weight: Weight = 0.5,
    eps: NotNegative = 0.5,
    order: Count = 4,
) -> LossTerms:
    """Compute the Matrix-SSL loss: matrix cross-entropies between covariances of teacher and student.

        L = −mean_{v≠r} { b · tr log₄(X(t_r, z_v) + μI) + a · tr[(X(t_r, t_r) + μI) log₄(X(z_v, z_v) + μI)] }

    X(a, b) = c(rows a)ᵀ c(rows b) / N has centered unit rows. log₄(Q) = Σ_{k≤4} (−1)^{k+1} (Q − I)^k / k is a
    truncated series, not the logarithm.

    Departures: none at V = 2, where the mean over both directions is the original's half sum.

    Cost: time V²·(N·D² + D³), memory D² a pair.

    Args:
        z: Predictions (V, N, D), or V tensors (N, D).
        target: Projections t (V, N, D) of the teacher, used without gradient; z itself if None.
        invariance_weight: Weight a of the alignment (γ of the paper).
        variance_weight: Weight b of the uniformity (λ of the paper).
        eps: Constant μ added to the diagonal.
        order: Number of terms of the series.
    """
    V, N, D = z.shape
    teacher = center(unit(as_target(target, z)))
    student = center(unit(z))
    lift = eps * torch.eye(D, dtype=z.dtype, device=z.device)
    own = teacher.mT @ teacher / N + lift  # (V, D, D)
    others = (own.sum(0) - own) / (V * (V - 1))  # the sum over r ≠ v, because the trace is linear in it
    alignment = _trace_with_log(others, student.mT @ student / N + lift, order).sum()
    uniformity = z.new_zeros(())
    students = student.unbind()  # indexing would cost the gradient of all views for each pair
    for v, r in permutations(range(V), 2):
        uniformity = uniformity + _trace_with_log(None, teacher[r].mT @ students[v] / N + lift, order)
    return LossTerms.of(
        invariance=-invariance_weight * alignment,
        variance=-variance_weight * uniformity / (V * (V - 1)),
    )


def _trace_with_log(weight: Tensor | None, matrix: Tensor, order: int) -> Tensor:
    """Return tr(P · Σ_{k=1..order} (−1)^{k+1} (Q − I)^k / k), by Horner's rule; P = I without a weight.

    It takes order − 2 matrix products, and one more with a weight.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    x = matrix - identity
    signs = [(-1) ** (k + 1) / k for k in range(1, order + 1)]
    total = identity * signs[-1]
    if order > 1:
        total = identity * signs[-2] + signs[-1] * x
    for sign in reversed(signs[:-2]):
        total = identity * sign + x @ total
    left = x if weight is None else weight @ x
    trace: Tensor = (left * total.mT).sum((-2, -1))
    return trace


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class MatrixSSLLoss(Objective):
    """Module of `matrixssl_loss`, with its options."""

    function = staticmethod(matrixssl_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=False,
        factorization="none",
        exponents=(2, 1, 2),
        remark="D³ a pair of views besides",
    )
