"""VICReg (Bardes, Ponce, LeCun, ICLR 2022, arXiv 2105.04906)."""

from __future__ import annotations

from torch import Tensor

from frossl.config import NotNegative, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import (
    covariance,
    effective_rank,
    hinge_on_deviation,
    mse_between_pairs,
    off_diagonal,
)
from frossl.types import LossTerms


@objective
def vicreg_loss(
    z: Tensor,
    *,
    invariance_weight: Weight = 25.0,
    variance_weight: Weight = 25.0,
    covariance_weight: Weight = 1.0,
    eps: NotNegative = 1e-4,
) -> LossTerms:
    """Compute the VICReg loss: the distance of views, a hinge on each deviation, and squared covariances.

        L = a · mean_{v<r} MSE(z_v, z_r) + b · mean_v mean_d max(0, 1 − √(Var_d(z_v) + ε))
            + 2c · mean_v (1/D) Σ_{i≠j} Cov(z_v)²_ij

    Var and Cov are unbiased.

    Departures: none at V = 2, where this is the authors' code. Their paper has twice the second term at
    V = 2, as solo-learn does: preset `paper`.

    Cost: time V·N·D², memory V·D².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        invariance_weight: Weight a of the distance of views.
        variance_weight: Weight b of the hinge.
        covariance_weight: Weight c of the covariances.
        eps: Constant ε added to the variances.
    """
    D = z.shape[-1]
    matrix = covariance(z)
    return LossTerms.of(
        invariance=invariance_weight * mse_between_pairs(z),
        variance=variance_weight * hinge_on_deviation(z, eps=eps).mean(),
        covariance=2 * covariance_weight / D * off_diagonal(matrix).mean(),
        extras={"effective_rank": effective_rank(matrix)},
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {},
    "paper": lambda V: {"variance_weight": 50.0},
}


class VICRegLoss(Objective):
    """Module of `vicreg_loss`, with its options."""

    function = staticmethod(vicreg_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="no",
        eigenvalues=False,
        factorization="none",
        exponents=(1, 1, 2),
        remark="the hinge acts on single columns",
    )
