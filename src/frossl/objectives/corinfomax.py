"""CorInfoMax (Ozsoy et al., NeurIPS 2022, arXiv 2209.07999)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Inertia, NotNegative, Weight
from frossl.objectives.contract import Objective, Preset, objective, past_state
from frossl.objectives.criteria import Criteria
from frossl.objectives.spectra import log_det
from frossl.objectives.terms import mse_between_pairs, unit
from frossl.types import LossTerms


@objective
def corinfomax_loss(
    z: Tensor,
    *,
    mean: Tensor | None = None,
    covariance: Tensor | None = None,
    invariance_weight: Weight = 500.0,
    variance_weight: Weight = 1.0,
    momentum: Inertia = 0.01,
    eps: NotNegative = 1e-6,
    rows: bool = True,
) -> LossTerms:
    """Compute the CorInfoMax loss: log-determinants of running covariances, and the distance of views.

        L = a · mean_{v<r} MSE(u_v, u_r) − 2b · mean_v (1/D) log det(R_v + εI),  u = unit rows of z
        μ_v ← λ μ_v + (1 − λ) mean_n u_v,   R_v ← λ R_v + (1 − λ) (u_v − μ_v)ᵀ(u_v − μ_v) / N

    R_v includes the current batch, with gradient, around the new mean. State: `mean` and `covariance`.

    Departures: none at V = 2. As in the original, the determinant is computed in float64, because float32 is
    not enough for the ε = 1e-8 of its commands; MPS has no float64.

    Cost: time V·(N·D² + D³), memory V·D².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        mean: Running means μ (V, D); 0 if None.
        covariance: Running covariances R (V, D, D); the identity if None.
        invariance_weight: Weight a of the distance of views.
        variance_weight: Weight b of the log-determinants.
        momentum: Weight λ of the past.
        eps: Constant ε added to the diagonal.
        rows: Whether to scale rows to unit length; if False, u = z.
    """
    V, N, D = z.shape
    u = unit(z) if rows else z
    wide = u.double()
    identity = torch.eye(D, dtype=wide.dtype, device=z.device)
    past_mean = past_state("mean", mean, wide.new_zeros(V, D))
    past = past_state("covariance", covariance, identity.expand(V, D, D))
    new_mean = momentum * past_mean + (1 - momentum) * wide.mean(1)
    around = wide - new_mean[:, None]
    new = torch.baddbmm(past, around.mT, around, beta=momentum, alpha=(1 - momentum) / N)
    return LossTerms.of(
        invariance=invariance_weight * mse_between_pairs(u),
        variance=(-2 * variance_weight / D * log_det(new + eps * identity).mean()).to(z),
        state={"mean": new_mean, "covariance": new},
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {},
    # the published commands, by data set, all with ε = 1e-8
    "cifar10": lambda V: {"invariance_weight": 250.0, "eps": 1e-8},
    "cifar100": lambda V: {"invariance_weight": 1000.0, "eps": 1e-8},
    "tiny-imagenet": lambda V: {"momentum": 0.1, "eps": 1e-8},
    "imagenet100": lambda V: {"eps": 1e-8},
    "imagenet": lambda V: {"invariance_weight": 2000.0, "momentum": 0.1, "eps": 1e-8},
}


class CorInfoMaxLoss(Objective):
    """Module of `corinfomax_loss`, with its options and the running mean and covariance of each view."""

    function = staticmethod(corinfomax_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=True,
        factorization="Cholesky",
        exponents=(1, 1, 2),
        remark="the running covariance's spectrum; D³ besides; state of D² a view",
    )
    state = ("mean", "covariance")
