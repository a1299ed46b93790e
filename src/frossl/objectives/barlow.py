"""Barlow Twins (Zbontar et al., ICML 2021, arXiv 2103.03230)."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from frossl.config import NotNegative, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import off_diagonal, standardize
from frossl.types import LossTerms


@objective
def barlow_loss(
    z: Tensor, *, invariance_weight: Weight = 1.0, covariance_weight: Weight = 0.0051, eps: NotNegative = 1e-5
) -> LossTerms:
    """Compute the Barlow Twins loss, which brings the cross-correlation of two views to the identity:

        L = mean_{v<r} [ a · Σ_i (1 − R_vr,ii)² + c · Σ_{i≠j} R_vr,ij² ],   R_vr = ẑ_vᵀẑ_r / N

    ẑ has standardized columns.

    Departures: none at V = 2; for more views, the mean over pairs.

    Cost: time V²·N·D², memory D² a pair.

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        invariance_weight: Weight a of the diagonal.
        covariance_weight: Weight c of the other entries (λ of the paper; 0.0051 in the authors' code).
        eps: Constant added to the variance of each column.
    """
    N = z.shape[1]
    on, off = z.new_zeros(()), z.new_zeros(())
    pairs = list(combinations(standardize(z, eps=eps).unbind(), 2))
    for a, b in pairs:
        correlation = a.mT @ b / N
        on = on + (1 - torch.diagonal(correlation)).square().sum()
        off = off + off_diagonal(correlation)
    return LossTerms.of(
        invariance=invariance_weight * on / len(pairs), covariance=covariance_weight * off / len(pairs)
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {},
    # solo-learn and the FroSSL authors' CIFAR, STL-10 and ImageNet-100 files scale the loss
    "solo-learn": lambda V: {"invariance_weight": 0.1, "covariance_weight": 0.1 * 0.0051},
}


class BarlowTwinsLoss(Objective):
    """Module of `barlow_loss`, with its options."""

    function = staticmethod(barlow_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="no",
        eigenvalues=False,
        factorization="none",
        exponents=(2, 1, 2),
        remark="compares columns across views",
    )
