"""IsoLoss (Halvagal, Laborieux, Zenke, NeurIPS 2023, arXiv 2212.04858)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Inertia, NotNegative
from frossl.objectives.contract import Objective, Preset, Views, as_target, objective, past_state
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import inverse_length
from frossl.types import LossTerms


@objective
def iso_loss(
    z: Tensor,
    *,
    target: Views | None = None,
    covariance: Tensor | None = None,
    momentum: Inertia = 0.998,
    alpha: NotNegative = 0.5,
    eps: NotNegative = 0.0,
    euclidean: bool = False,
    sequential: bool = True,
) -> LossTerms:
    """Compute IsoLoss: predict the teacher by an analytic predictor W, so that all eigenmodes learn alike.

        L = −4 · mean_{v≠r} mean_n [ z_v·t_r / (|p_v||t_r|) − ½ (p_v·t_r) / (|p_v|³|t_r|) · z_vᵀW_v z_v ]
        p_v = z_v W_v,   W = E diag((max(e, 0)/e_max + ε)^α) Eᵀ,   C = E diag(e) Eᵀ

    Only the z_v written out carry gradient; that gradient is the one of 2 − 2 cos(z + sg(zW − z), t). With
    `euclidean=True`, L = 2 · mean_{v≠r} mean_n ‖z_v − sg(t_r + z_v − p_v)‖². DirectCopy is alpha 1, eps 0.25.
    State: `covariance`, C ← τ C + (1 − τ) z_vᵀz_v / N.

    Departures: the symmetric eigensolver, where the original uses the general one.

    Cost: time V·(N·D² + D³) + V²·N·D (one D³ if not sequential), memory D².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        target: Projections t (V, N, D) of the teacher, used without gradient; z itself if None.
        covariance: Running covariance C (D, D); 0 if None.
        momentum: Weight τ of the past covariance (0.5 without a teacher).
        alpha: Exponent α of the eigenvalues.
        eps: Constant ε added to the normalized eigenvalues.
        euclidean: Whether to use the Euclidean loss in place of the cosine.
        sequential: Whether to update C view by view, each view using the C it has just updated, as in the
            original; the order of views then matters slightly. False updates C once, by the mean over views.
    """
    V, N, D = z.shape
    teacher = as_target(target, z)
    with torch.no_grad():
        still = z.detach()  # forward-mode differentiation ignores no_grad
        past = past_state("covariance", covariance, z.new_zeros(D, D))
        moments = still.mT @ still / N
        if sequential:
            steps = []
            for moment in moments:
                past = momentum * past + (1 - momentum) * moment
                steps.append(past)
            predictor = _predictor(torch.stack(steps), alpha, eps)
        else:
            past = momentum * past + (1 - momentum) * moments.mean(0)
            predictor = _predictor(past, alpha, eps).expand(V, D, D)
        p = still @ predictor
    form = _euclidean if euclidean else _cosine
    return LossTerms.of(invariance=form(z, p, predictor, teacher), state={"covariance": past})


def _predictor(matrix: Tensor, alpha: float, eps: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    largest = values.amax(-1, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny)
    powers = (values.clamp_min(0) / largest + eps) ** alpha
    return torch.matmul(vectors * powers[..., None, :], vectors.mT)


def _cosine(z: Tensor, p: Tensor, predictor: Tensor, target: Tensor) -> Tensor:
    V, N, _ = z.shape
    inverse = inverse_length(p.square().sum(-1, keepdim=True))
    p = p * inverse
    target = target * inverse_length(target.square().sum(-1, keepdim=True))
    others = target.sum(0) - target  # Σ_{r≠v} t_r, as both terms are linear in the target
    first = (z * inverse * others).sum(-1)
    energy = (z * (z @ predictor)).sum(-1) * inverse.squeeze(-1).square()
    second = (p * others).sum(-1) * energy / 2
    return -4 * (first - second).sum() / (N * V * (V - 1))


def _euclidean(z: Tensor, p: Tensor, predictor: Tensor, target: Tensor) -> Tensor:
    V, N, _ = z.shape
    total = z.new_zeros(())
    for shift in range(1, V):
        goal = target.roll(shift, 0) + z.detach() - p
        total = total + (z - goal).square().sum()
    return 2 * total / (N * V * (V - 1))


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {},
    "direct-copy": lambda V: {"alpha": 1.0, "eps": 0.25},
}


class IsoLoss(Objective):
    """Module of `iso_loss`, with its options and the running covariance."""

    function = staticmethod(iso_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=None,
        factorization="eigenvalues",
        exponents=(1, 1, 2),
        remark="they make its predictor; D³ a view besides",
    )
    state = ("covariance",)
