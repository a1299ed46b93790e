"""LeJEPA's loss: mean target and SIGReg (Balestriero, LeCun, 2025, arXiv 2511.08544)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Count, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.slices import directions
from frossl.objectives.terms import mse_to_global_mean
from frossl.types import LossTerms

KNOTS = 17
"""Number of points of the trapezoid rule on [0, T_MAX]."""
T_MAX = 3.0
"""Upper end of the integral of SIGReg."""


@objective
def lejepa_loss(
    z: Tensor,
    *,
    invariance_weight: Weight = 0.98,
    variance_weight: Weight = 0.02,
    slices: Count | Tensor = 256,
    global_views: Count | None = None,
    rng: torch.Generator | None = None,
) -> LossTerms:
    """Compute the LeJEPA loss: the distance to the mean view, and SIGReg, a test of each view for normality.

        L = a · mean (z_v − z̄)²  +  b · mean_v SIGReg(z_v)

    z̄ is the mean of the global views, with its gradient. The paper's λ is b with a = 1 − b. See `sigreg`.

    Departures: none. Near collapse the gradient of SIGReg shrinks with the spread.

    Cost: time V·N·K·(D + knots), memory V·N·K·knots.

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        invariance_weight: Weight a of the distance to the mean view.
        variance_weight: Weight b of SIGReg.
        slices: Number K of random directions, or the directions themselves (D, K).
        global_views: Number of leading views that z̄ averages; None for all.
        rng: Generator of the random directions.
    """
    return LossTerms.of(
        invariance=invariance_weight * mse_to_global_mean(z, global_views),
        variance=variance_weight * sigreg(z, directions(slices, z, rng)).mean(),
    )


def sigreg(z: Tensor, slices: Tensor) -> Tensor:
    """Return SIGReg of each view (V,): a distance of its slices to a standard Gaussian.

    It is N · mean over slices a of ∫ |φ_z·a(t) − e^{−t²/2}|² e^{−t²/2} dt over [−3, 3], where φ is the
    empirical characteristic function. The integral is twice that over [0, 3], by the trapezoid rule with 17
    knots.

    Args:
        z: Projections (V, N, D).
        slices: Unit directions (D, K).
    """
    t = torch.linspace(0, T_MAX, KNOTS, dtype=z.dtype, device=z.device)
    gauss = (-t.square() / 2).exp()
    weight = gauss * (2 * T_MAX / (KNOTS - 1))
    weight = torch.cat([weight[:1] / 2, weight[1:-1], weight[-1:] / 2])
    x = (z @ slices)[..., None] * t  # (V, N, K, knots)
    error = (x.cos().mean(1) - gauss).square() + x.sin().mean(1).square()
    return z.shape[1] * (error @ weight).mean(-1)


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {},
    "multi-crop": lambda V: {"invariance_weight": 0.95, "variance_weight": 0.05, "global_views": 2},
}


class LeJEPALoss(Objective):
    """Module of `lejepa_loss`, with its options."""

    function = staticmethod(lejepa_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="in expectation",
        eigenvalues=False,
        factorization="none",
        exponents=(1, 1, 1),
        remark="times the number of slices",
    )
