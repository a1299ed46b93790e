"""BYOL (Grill et al., NeurIPS 2020, arXiv 2006.07733)."""

from __future__ import annotations

from torch import Tensor

from frossl.objectives.contract import Objective, Preset, Views, as_target, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import cosine_to_others
from frossl.types import LossTerms


@objective
def byol_loss(z: Tensor, *, target: Views | None = None) -> LossTerms:
    """Compute the BYOL loss: the distance of each prediction to the teacher's projections of other views.

        L = 2 · mean_{v≠r} mean_n ‖z_v/|z_v| − t_r/|t_r|‖²  =  4 − 4 · mean_{v≠r} mean_n cos(z_v, sg(t_r))

    It is 4 + 4 times SimSiam's loss. The loss alone does not prevent collapse; predictor and teacher do.

    Departures: none; two views give the sum of both directions, as in the original.

    Cost: time and memory V·N·D.

    Args:
        z: Predictions (V, N, D), or V tensors (N, D).
        target: Projections t (V_t, N, D) of the teacher for the first V_t views (all, or fewer with
            multi-crop), used without gradient; z itself if None.
    """
    return LossTerms.of(invariance=4 - 4 * cosine_to_others(z, as_target(target, z, fewer=True)))


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class BYOLLoss(Objective):
    """Module of `byol_loss`, with its options."""

    function = staticmethod(byol_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=None,
        factorization="none",
        exponents=(1, 1, 1),
        remark="no variance term: predictor and teacher prevent collapse",
    )
