"""MMCR (Yerxa et al., NeurIPS 2023, arXiv 2303.03307)."""

from __future__ import annotations

from torch import Tensor

from frossl.config import Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.spectra import nuclear_norm
from frossl.objectives.terms import unit
from frossl.types import LossTerms


@objective
def mmcr_loss(z: Tensor, *, variance_weight: Weight = 1.0, local_weight: Weight = 0.0) -> LossTerms:
    """Compute the MMCR loss: the nuclear norm of the mean of the views.

        L = −b · ‖mean_v u_v‖_*  +  c · mean_n ‖[u_1n … u_Vn]‖_*

    u are unit rows. The first term both pulls views together and spreads images apart; the second is the
    spread of the V × D matrix of each image.

    Departures: none. Lightly's loss leaves the unit rows to the caller, and without them has no minimum.

    Cost: time V·N·D + N·D·min(N, D), constant in V but for the mean, and N·V²·D for the local term; memory
    V·N·D.

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        variance_weight: Weight b of the global nuclear norm.
        local_weight: Weight c of the local nuclear norms (0 in the original's files).
    """
    u = unit(z)
    spread = nuclear_norm(u.mean(0))
    if not local_weight:
        return LossTerms.of(variance=-variance_weight * spread)
    local = nuclear_norm(u.transpose(0, 1)).mean()
    return LossTerms.of(variance=-variance_weight * spread, local=local_weight * local)


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class MMCRLoss(Objective):
    """Module of `mmcr_loss`, with its options."""

    function = staticmethod(mmcr_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=True,
        factorization="singular values",
        exponents=(0, 1, 2),
        remark="the spectrum is that of the mean view; V·N·D for the mean, singular values once",
    )
