"""DINO (Caron et al., ICCV 2021, arXiv 2104.14294)."""

from __future__ import annotations

from torch import Tensor

from frossl.config import Positive, Share
from frossl.objectives.contract import Objective, Preset, Views, as_target, objective, past_state
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import cross_entropy_to_others
from frossl.types import LossTerms


@objective
def dino_loss(
    z: Tensor,
    *,
    target: Views | None = None,
    center: Tensor | None = None,
    temperature: Positive = 0.1,
    target_temperature: Positive = 0.04,
    momentum: Share = 0.9,
) -> LossTerms:
    """Compute the DINO loss: every view predicts the teacher's distribution over K outputs for global views.

        L = mean_{c ≤ V_t} mean_{v≠c} mean_n −Σ_k q_c,nk log softmax(z_v / τ)_nk,
        q_c = softmax((t_c − center) / τ_t),      center ← m · center + (1 − m) · mean of the rows of t

    State: `center`, updated after the loss.

    Departures: none.

    Cost: time and memory V·N·K.

    Args:
        z: Logits (V, N, K) of the student, or V tensors (N, K).
        target: Logits t (V_t, N, K) of the teacher for the first V_t views, used without gradient; those of
            the first two views of z if None.
        center: Running center (K,) of the teacher's logits; 0 if None.
        temperature: Temperature τ of the student.
        target_temperature: Temperature τ_t of the teacher.
        momentum: Weight m of the past center.
    """
    logits = as_target(target, z, fewer=True)
    if target is None:
        logits = logits[:2]
    past = past_state("center", center, z.new_zeros(z.shape[-1]))
    q = ((logits - past) / target_temperature).softmax(-1)
    return LossTerms.of(
        invariance=cross_entropy_to_others((z / temperature).log_softmax(-1), q),
        state={"center": momentum * past + (1 - momentum) * logits.mean((0, 1))},
    )


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class DINOLoss(Objective):
    """Module of `dino_loss`, with its options and the running center of the teacher's logits."""

    function = staticmethod(dino_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="no",
        eigenvalues=None,
        factorization="none",
        exponents=(1, 1, 1),
        remark="D is the number of outputs",
    )
    state = ("center",)
