"""MMCR (Yerxa et al., NeurIPS 2023, arXiv 2303.03307)."""

from __future__ import annotations

from torch import Tensor

from frossl.config import Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.spectra import nuclear_norm
from frossl.objectives.terms import unit
from frossl.types import LossTerms


@objective
def mmcr_loss(z: Tensor, *, variance_weight: Weight = 1.0, local_weight: Weight = 0.0) -> LossTerms:
    """The nuclear norm of the mean of the views, u being unit rows:

        L = −b · ‖mean_v u_v‖_*  +  c · mean_n ‖[u_1n … u_Vn]‖_*

    b is `variance_weight`, c `local_weight` (0 in the original's files); the second term is the spread of
    each image's own V × D matrix. Pulling views together and spreading images apart is one term here.

    Departures: none. Lightly's loss leaves the unit rows to the caller, and then has no minimum.

    Cost: time V·N·D + N·D·min(N, D), constant in V but for the mean, and N·V²·D for the local term; memory
    V·N·D.
    """
    u = unit(z)
    spread = nuclear_norm(u.mean(0))
    if not local_weight:
        return LossTerms.of(variance=-variance_weight * spread)
    local = nuclear_norm(u.transpose(0, 1)).mean()
    return LossTerms.of(variance=-variance_weight * spread, local=local_weight * local)


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class MMCRLoss(Objective):
    """`mmcr_loss` with its options stored."""

    function = staticmethod(mmcr_loss)
    presets = PRESETS
