"""VISReg (Wu et al., 2026, arXiv 2606.02572)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Count, NotNegative, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.slices import directions
from frossl.objectives.terms import center, inverse_length, mse_to_global_mean, rounding
from frossl.types import LossTerms


@objective
def visreg_loss(
    z: Tensor,
    *,
    invariance_weight: Weight = 0.1,
    variance_weight: Weight = 0.9,
    slices: Count | Tensor = 4096,
    global_views: Count | None = None,
    eps: NotNegative = 1e-6,
    shape_eps: NotNegative | None = None,
    rng: torch.Generator | None = None,
) -> LossTerms:
    """Compute the VISReg loss: the distance to the mean view, and that of each view to a standard Gaussian.

        L = a · mean (z_v − z̄)²  +  b · (scale + shape + center)
        scale = mean (σ − 1)²,   shape = mean (sort_n[c(z_v)/sg(σ)·s] − Φ⁻¹(n/(N+1)))²,   center = mean μ²

    μ and σ = √(biased variance) + ε are those of each column of each view, and s are random unit directions.
    z̄ is the mean of the global views, with its gradient. The original's λ is b with a = 1 − b.

    Departures: a constant column has σ = ε with gradient 0, where √ has none.

    Cost: time V·K·N·(D + log N), memory V·N·K.

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        invariance_weight: Weight a of the distance to the mean view.
        variance_weight: Weight b of scale, shape and center.
        slices: Number K of random directions, or the directions themselves (D, K).
        global_views: Number of leading views that z̄ averages; None for all.
        eps: Constant ε added to the standard deviations.
        shape_eps: The constant ε in the shape term, if it differs.
        rng: Generator of the random directions.
    """
    N = z.shape[1]
    moved = center(z)
    variance = moved.square().mean(-2, keepdim=True)
    constant = rounding(z.detach().square().mean(-2, keepdim=True), z)
    root = variance * inverse_length(variance, constant)
    unit_scale = moved / (root.detach() + (eps if shape_eps is None else shape_eps))
    ordered = (unit_scale @ directions(slices, z, rng)).sort(dim=-2).values
    n = torch.arange(1, N + 1, dtype=z.dtype, device=z.device)[:, None]
    quantiles = torch.special.ndtri(n / (N + 1))
    return LossTerms.of(
        invariance=invariance_weight * mse_to_global_mean(z, global_views),
        scale=variance_weight * (root + eps - 1).square().mean(),
        shape=variance_weight * (ordered - quantiles).square().mean(),
        center=variance_weight * z.mean(-2).square().mean(),
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {"global_views": min(4, V)},
    "small-data": lambda V: {"invariance_weight": 0.4, "variance_weight": 0.6},
}


class VISRegLoss(Objective):
    """Module of `visreg_loss`, with its options."""

    function = staticmethod(visreg_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="no",
        eigenvalues=False,
        factorization="none",
        exponents=(1, 1, 1),
        remark="times the number of slices",
    )
