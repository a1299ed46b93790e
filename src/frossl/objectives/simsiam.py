"""SimSiam (Chen, He, CVPR 2021, arXiv 2011.10566)."""

from __future__ import annotations

from torch import Tensor

from frossl.objectives.contract import Objective, Preset, Views, as_target, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import cosine_to_others
from frossl.types import LossTerms


@objective
def simsiam_loss(z: Tensor, *, target: Views | None = None) -> LossTerms:
    """Compute the SimSiam loss: the cosine of each prediction with the projections of the other views.

        L = −mean_{v≠r} mean_n cos(z_v, sg(t_r))

    The loss alone does not prevent collapse; the predictor does.

    Departures: none.

    Cost: time and memory V·N·D.

    Args:
        z: Predictions (V, N, D), or V tensors (N, D).
        target: Projections t (V_t, N, D) of the first V_t views (all, or fewer with multi-crop), used without
            gradient; z itself if None.
    """
    return LossTerms.of(invariance=-cosine_to_others(z, as_target(target, z, fewer=True)))


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class SimSiamLoss(Objective):
    """Module of `simsiam_loss`, with its options."""

    function = staticmethod(simsiam_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=None,
        factorization="none",
        exponents=(1, 1, 1),
        remark="no variance term: the predictor prevents collapse",
    )
