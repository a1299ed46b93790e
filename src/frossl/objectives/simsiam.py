"""SimSiam (Chen, He, CVPR 2021, arXiv 2011.10566)."""

from __future__ import annotations

from torch import Tensor

from frossl.objectives.contract import Objective, Preset, Views, as_target, objective
from frossl.objectives.terms import cosine_to_others
from frossl.types import LossTerms


@objective
def simsiam_loss(z: Tensor, *, target: Views | None = None) -> LossTerms:
    """Cosine of each prediction with the stopped projections of the other views:

        L = −mean_{v≠r} mean_n cos(z_v, sg(t_r))

    z: predictions (V, N, D). target: projections (V_t, N, D) of the first V_t views (of all, or fewer with
    multi-crop), whose gradient is stopped (z itself, if None).
    Nothing here prevents collapse: the predictor does.

    Departures: none.

    Cost: time and memory V·N·D.
    """
    return LossTerms.of(invariance=-cosine_to_others(z, as_target(target, z, fewer=True)))


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class SimSiamLoss(Objective):
    """`simsiam_loss` as a Module."""

    function = staticmethod(simsiam_loss)
    presets = PRESETS
