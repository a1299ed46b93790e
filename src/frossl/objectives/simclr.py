"""SimCLR's NT-Xent (Chen et al., ICML 2020, arXiv 2002.05709)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from frossl.config import Positive, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import cosine_between_pairs, unit
from frossl.types import LossTerms

Positives = Literal["each", "summed"]


@objective
def simclr_loss(
    z: Tensor,
    *,
    temperature: Positive = 0.1,
    invariance_weight: Weight = 1.0,
    variance_weight: Weight = 1.0,
    positives: Positives = "each",
) -> LossTerms:
    """Compute the SimCLR loss (NT-Xent): each view of an image against all other rows.

        L = −a · mean_{(i, p)} s_ip  +  b · mean_i log Σ_{j≠i} exp(s_ij),   s_ij = cos(z_i, z_j) / τ

    i and j are among the V·N rows; (i, p) are ordered positive pairs, two views of one image. With a = b it
    is −log softmax. Other positives stay in the denominator.

    Departures: the mean over all 2N rows, as in the paper. Google's code adds the means of the two
    directions, which is twice as much: preset `released`.

    Cost: time V²·N²·D, memory V²·N².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        temperature: Temperature τ.
        invariance_weight: Weight a of the positives.
        variance_weight: Weight b of the denominator.
        positives: `each` averages s_ip over p; `summed` takes log Σ_p exp(s_ip) instead, as solo-learn does.
            The two agree for V = 2.
    """
    V, N, D = z.shape
    rows = unit(z).reshape(V * N, D)
    itself = torch.eye(V * N, dtype=torch.bool, device=z.device)
    scores = (rows @ rows.mT / temperature).masked_fill(itself, -torch.inf)
    if positives == "each":
        attraction = cosine_between_pairs(z) / temperature
    else:
        image = torch.arange(N, device=z.device).repeat(V)
        same = (image[:, None] == image) & ~itself
        attraction = scores.masked_fill(~same, -torch.inf).logsumexp(1).mean()
    return LossTerms.of(
        invariance=-invariance_weight * attraction, variance=variance_weight * scores.logsumexp(1).mean()
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "paper": lambda V: {},
    "released": lambda V: {"invariance_weight": 2.0, "variance_weight": 2.0},
    "solo-learn": lambda V: {"temperature": 0.2, "positives": "summed"},
}


class SimCLRLoss(Objective):
    """Module of `simclr_loss`, with its options."""

    function = staticmethod(simclr_loss)
    presets = PRESETS
    criteria = Criteria(rotation="yes", eigenvalues=False, factorization="none", exponents=(2, 2, 1))
