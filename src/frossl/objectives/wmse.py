"""W-MSE (Ermolov et al., ICML 2021, arXiv 2007.06346)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Count, Several, Share
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.terms import cosine_between_pairs, sum_of_later, unit, whiten
from frossl.types import LossTerms


@objective
def wmse_loss(
    z: Tensor,
    *,
    sub_batch: Several = 128,
    iterations: Count = 1,
    eps: Share = 0.0,
    detach: bool = False,
    rng: torch.Generator | None = None,
) -> LossTerms:
    """Distance of unit rows after whitening each view, in random sub-batches:

        L = mean_{v<r} (2 − 2 · mean_n cos(w(z_v)_n, w(z_r)_n)),  averaged over `iterations` permutations,
        w(x) = (x − mean) L⁻ᵀ,  LLᵀ = (1 − ε) Cov(x) + ε I

    Every sub-batch has at least `sub_batch` images (all, if there are fewer), and needs more than D of them:
    with fewer, every batch is white in N − 1 directions and the loss says little, unless ε > 0.
    `detach=True` stops the gradient of the later view of each pair, as solo-learn does: the last view is
    then never trained.

    Departures: the diagonal is raised by rounding error, so collapsed batches give finite numbers where the
    original raises. Whitening by Cholesky is not rotation invariant, against the FroSSL paper's table.

    Cost: time iterations · V · (N·D² + D³), memory V·D².
    """
    N = z.shape[1]
    runs = max(1, N // sub_batch)
    total = z.new_zeros(())
    for _ in range(iterations):
        if runs == 1:
            white = whiten(z, eps=eps)
        else:
            order = torch.randperm(N, generator=rng, device=z.device if rng is None else rng.device)
            parts = order.to(z.device).tensor_split(runs)
            white = torch.cat([whiten(z[:, rows], eps=eps) for rows in parts], dim=1)
        total = total + (_later_stopped(white) if detach else cosine_between_pairs(white))
    return LossTerms.of(invariance=2 - 2 * total / iterations)


def _later_stopped(white: Tensor) -> Tensor:
    """Mean cosine over pairs v < r without the gradient of view r."""
    V, N, _ = white.shape
    u = unit(white)
    return (u[:-1] * sum_of_later(u.detach())).sum() / (N * V * (V - 1) / 2)


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {},
    "solo-learn": lambda V: {"detach": True},
}


class WMSELoss(Objective):
    """`wmse_loss` with its options stored."""

    function = staticmethod(wmse_loss)
    presets = PRESETS
