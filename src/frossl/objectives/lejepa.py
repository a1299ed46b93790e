"""LeJEPA's loss: mean target and SIGReg (Balestriero, LeCun, 2025, arXiv 2511.08544)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Count, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.slices import directions
from frossl.objectives.terms import mse_to_global_mean
from frossl.types import LossTerms

KNOTS, T_MAX = 17, 3.0


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
    """Distance to the mean view, and a test of each view's distribution against a standard Gaussian:

        L = a · mean (z_v − z̄)²  +  b · mean_v SIGReg(z_v)

    z̄ is the mean of the first `global_views` views (all, if None), with its gradient. a is
    `invariance_weight`, b `variance_weight`; the paper's λ is b with a = 1 − b. slices: how many random
    directions, drawn with `rng`, or the directions themselves (D, K). See `sigreg`.

    Departures: none. Near collapse SIGReg's gradient shrinks with the spread.

    Cost: time V·N·K·(D + knots), memory V·N·K·knots.
    """
    return LossTerms.of(
        invariance=invariance_weight * mse_to_global_mean(z, global_views),
        variance=variance_weight * sigreg(z, directions(slices, z, rng)).mean(),
    )


def sigreg(z: Tensor, slices: Tensor) -> Tensor:
    """N · mean over slices a of ∫ |φ_z·a(t) − e^{−t²/2}|² e^{−t²/2} dt over [−3, 3], one number a view.

    φ is the empirical characteristic function; 17 knots on [0, 3] by the trapezoid rule, doubled.
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
    """`lejepa_loss` with its options stored."""

    function = staticmethod(lejepa_loss)
    presets = PRESETS
