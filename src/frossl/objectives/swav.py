"""SwAV (Caron et al., NeurIPS 2020, arXiv 2006.09882)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from frossl.config import Count, Positive
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import cross_entropy_to_others
from frossl.types import LossTerms


@objective
def swav_loss(
    z: Tensor,
    *,
    queue: Tensor | None = None,
    global_views: Count = 2,
    temperature: Positive = 0.1,
    eps: Positive = 0.05,
    iterations: Count = 3,
) -> LossTerms:
    """Compute the SwAV loss: every view predicts the codes of the global views.

        L = mean_{c ≤ global_views} mean_{v≠c} mean_n −Σ_k Q_c,nk log softmax(z_v / τ)_nk

    Q_c are the Sinkhorn codes of view c, without gradient: see `sinkhorn`.

    Departures: the divisions of Sinkhorn are differences of logarithms, so large scores do not overflow.

    Cost: time V·N·K, memory V·N·K (the scores themselves cost V·N·D·K before).

    Args:
        z: Scores (V, N, K), or V tensors (N, K): cosines with K prototypes.
        queue: Scores (global_views, Q, K) of earlier images, which take part in the assignment only.
        global_views: Number of leading views whose codes are predicted.
        temperature: Temperature τ.
        eps: Entropy regularization of `sinkhorn`.
        iterations: Number of iterations of `sinkhorn`.
    """
    codes = []
    for c in range(min(global_views, len(z))):
        scores = z[c].detach() if queue is None else torch.cat([z[c].detach(), queue[c].detach().to(z)])
        codes.append(sinkhorn(scores, eps=eps, iterations=iterations)[: z.shape[1]])
    return LossTerms.of(
        invariance=cross_entropy_to_others((z / temperature).log_softmax(-1), torch.stack(codes))
    )


@torch.no_grad()
def sinkhorn(scores: Tensor, *, eps: float = 0.05, iterations: int = 3) -> Tensor:
    """Return codes (N, K) of scores (N, K) by Sinkhorn's algorithm.

    The columns and then the rows of exp(scores / eps) are scaled in turn to equal sums; rows sum to 1, and
    columns to nearly N/K.

    Args:
        scores: Cosines with the prototypes (N, K).
        eps: Entropy regularization; smaller values give sharper codes.
        iterations: Number of scalings of columns and rows.
    """
    N, K = scores.shape
    codes = scores / eps
    for _ in range(iterations):
        codes = codes - codes.logsumexp(0, keepdim=True) - math.log(K)
        codes = codes - codes.logsumexp(1, keepdim=True) - math.log(N)
    return (codes + math.log(N)).exp()


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class SwAVLoss(Objective):
    """Module of `swav_loss`, with its options."""

    function = staticmethod(swav_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="no",
        eigenvalues=None,
        factorization="none",
        exponents=(1, 1, 1),
        remark="D is the number of prototypes",
    )
