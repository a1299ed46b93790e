"""I-VNE+ (Kim et al., CVPR 2023, arXiv 2304.01434)."""

from __future__ import annotations

from torch import Tensor

from frossl.config import Count, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.spectra import renyi_variance
from frossl.objectives.terms import cosine_between_pairs, normalize
from frossl.types import LossTerms


@objective
def ivne_loss(
    z: Tensor,
    *,
    invariance_weight: Weight = 4.16,
    variance_weight: Weight = 1.0,
    global_views: Count | None = None,
) -> LossTerms:
    """Compute the I-VNE loss: the cosine of views, and the von Neumann entropy of each view.

        L = −a · mean_{v<r} mean_n cos(u_v, u_r) − b · mean_v H(u_vᵀu_v / N),   H(C) = −tr C ln C

    u are unit rows, not centered. The variance term is that of the Rényi family at α = 1: `renyi_variance`.

    Departures: none at V = 2. The FroSSL paper prints the entropy with the wrong sign.

    Cost: time V·(N·D·min(N, D) + min(N, D)³), memory V·min(N, D)².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        invariance_weight: Weight a of the cosine (4.16 is the logarithm of the original's batch of 64).
        variance_weight: Weight b of the entropy.
        global_views: Number of leading views of which each pair contains at least one; None for all pairs.
            The original uses 2 for its 2 + 4 crops; the two agree for V ≤ 3.
    """
    entropy = -renyi_variance(normalize(z, "rows"), alpha=1)
    return LossTerms.of(
        invariance=-invariance_weight * cosine_between_pairs(z, global_views),
        variance=-variance_weight * entropy.mean(),
        extras={"effective_rank": entropy.exp().mean()},
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {"global_views": 2},
    # the FroSSL paper states equal weights; its configuration files have 4.16 and 1
    "paper": lambda V: {"invariance_weight": 1.0},
}


class IVNELoss(Objective):
    """Module of `ivne_loss`, with its options."""

    function = staticmethod(ivne_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=True,
        factorization="eigenvalues",
        exponents=(1, 1, 2),
        remark="min(N, D)³ besides",
    )
