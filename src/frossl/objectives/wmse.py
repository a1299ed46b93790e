"""W-MSE (Ermolov et al., ICML 2021, arXiv 2007.06346)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Count, Several, Share
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
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
    """Compute the W-MSE loss: the distance of unit rows after each view is whitened, in random sub-batches.

        L = mean_{v<r} (2 − 2 · mean_n cos(w(z_v)_n, w(z_r)_n)),  averaged over `iterations` permutations,
        w(x) = (x − mean) L⁻ᵀ,  LLᵀ = (1 − ε) Cov(x) + ε I

    A sub-batch needs more than D images: with fewer, every batch is white in N − 1 directions and the loss
    carries little information, unless ε > 0.

    Departures: the diagonal is raised by the rounding error, so that collapsed batches give finite values
    where the original raises an error. Whitening by Cholesky is not rotation invariant, against the FroSSL
    paper's table.

    Cost: time iterations · V · (N·D² + D³), memory V·D².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        sub_batch: Fewest images in a sub-batch (all, if there are fewer).
        iterations: Number of random permutations.
        eps: Share ε of the identity in the covariance.
        detach: Whether to stop the gradient of the later view of each pair, as solo-learn does; the last view
            is then never trained.
        rng: Generator of the permutations.
    """
    N = z.shape[1]
    sub_batches = max(1, N // sub_batch)
    total = z.new_zeros(())
    for _ in range(iterations):
        if sub_batches == 1:
            white = whiten(z, eps=eps)
        else:
            order = torch.randperm(N, generator=rng, device=z.device if rng is None else rng.device)
            parts = order.to(z.device).tensor_split(sub_batches)
            white = torch.cat([whiten(z[:, rows], eps=eps) for rows in parts], dim=1)
        total = total + (_cosine_to_detached(white) if detach else cosine_between_pairs(white))
    return LossTerms.of(invariance=2 - 2 * total / iterations)


def _cosine_to_detached(white: Tensor) -> Tensor:
    """Return the mean cosine over pairs v < r without the gradient of view r."""
    V, N, _ = white.shape
    u = unit(white)
    return (u[:-1] * sum_of_later(u.detach())).sum() / (N * V * (V - 1) / 2)


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "released": lambda V: {},
    "solo-learn": lambda V: {"detach": True},
}


class WMSELoss(Objective):
    """Module of `wmse_loss`, with its options."""

    function = staticmethod(wmse_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="no",
        eigenvalues=False,
        factorization="Cholesky",
        exponents=(1, 1, 2),
        remark="symmetric whitening would be rotation invariant; Cholesky's is not, against the paper's "
        "table",
    )
