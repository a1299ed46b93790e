"""BYOL (Grill et al., NeurIPS 2020, arXiv 2006.07733)."""

from __future__ import annotations

from torch import Tensor

from frossl.objectives.contract import Objective, Preset, Views, as_target, objective
from frossl.objectives.terms import cosine_to_others
from frossl.types import LossTerms


@objective
def byol_loss(z: Tensor, *, target: Views | None = None) -> LossTerms:
    """Distance of unit rows, of each prediction to the teacher's projections of the other views:

        L = 2 · mean_{v≠r} mean_n ‖z_v/|z_v| − t_r/|t_r|‖²  =  4 − 4 · mean_{v≠r} mean_n cos(z_v, sg(t_r))

    z: predictions (V, N, D). target: projections (V_t, N, D) of the teacher for the first V_t views (all, or
    fewer with multi-crop), without gradient (z itself, if None). It is 4 + 4 times SimSiam's loss. Nothing
    here prevents collapse: predictor and teacher do.

    Departures: none; two views give the sum of both directions, as the original does.

    Cost: time and memory V·N·D.
    """
    return LossTerms.of(invariance=4 - 4 * cosine_to_others(z, as_target(target, z, fewer=True)))


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class BYOLLoss(Objective):
    """`byol_loss` as a Module."""

    function = staticmethod(byol_loss)
    presets = PRESETS
