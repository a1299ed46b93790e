"""Spectral contrastive loss (HaoChen et al., NeurIPS 2021, arXiv 2106.04156)."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from frossl.config import Positive, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import inverse_length
from frossl.types import LossTerms


@objective
def spectral_loss(
    z: Tensor, *, mu: Positive = 1.0, invariance_weight: Weight = 1.0, variance_weight: Weight = 1.0
) -> LossTerms:
    """Compute the spectral contrastive loss: positives attract, squared products of different images repel.

        L = (1/μ) · mean_{v<r} [ −2a · mean_n x_vn·x_rn  +  b · Σ_{i≠j} (x_vi·x_rj)² / (N(N − 1)) ]

    x are the rows of z; those longer than √μ are scaled to that length.

    Departures: none at V = 2; for more views, the mean over pairs.

    Cost: time V²·N²·D, memory N² a pair.

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        mu: Largest squared length μ of a row (in the original 1 on CIFAR, 10 on ImageNet).
        invariance_weight: Weight a of the attraction.
        variance_weight: Weight b of the repulsion.
    """
    N = z.shape[1]
    squares = z.square().sum(-1, keepdim=True)
    x = z * torch.where(squares >= mu, mu**0.5 * inverse_length(squares), 1.0)
    together, apart = z.new_zeros(()), z.new_zeros(())
    pairs = list(combinations(x.unbind(), 2))
    for a, b in pairs:
        products = a @ b.mT
        positive = torch.diagonal(products)
        together = together + positive.mean()
        apart = apart + (products.square().sum() - positive.square().sum()) / (N * (N - 1))
    scale = 1 / (mu * len(pairs))
    return LossTerms.of(
        invariance=-2 * invariance_weight * scale * together, variance=variance_weight * scale * apart
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "cifar": lambda V: {"mu": 1.0},
    "imagenet": lambda V: {"mu": 10.0},
}


class SpectralContrastiveLoss(Objective):
    """Module of `spectral_loss`, with its options."""

    function = staticmethod(spectral_loss)
    presets = PRESETS
    criteria = Criteria(rotation="yes", eigenvalues=False, factorization="none", exponents=(2, 2, 1))
