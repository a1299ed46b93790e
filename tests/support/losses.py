"""Projections to compute losses of, and what is computed with them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from frossl.objectives import OBJECTIVES
from frossl.objectives.terms import center, effective_rank, gram
from frossl.types import LossTerms

DEFAULTS = {
    # a queue is an argument of the function; small numbers of slices keep the tests quick
    "moco": lambda z: {"queue": torch.nn.functional.normalize(torch.ones(7, z.shape[-1]).cumsum(0).cos())},
    "lejepa": lambda z: {"slices": 16, "rng": torch.Generator().manual_seed(0)},
    "visreg": lambda z: {"slices": 16, "rng": torch.Generator().manual_seed(0)},
}


def default_loss(name: str, z: Tensor, **options) -> LossTerms:
    return OBJECTIVES[name].function(z, **{**DEFAULTS.get(name, lambda z: {})(z), **options})


def views(V: int, N: int, D: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Random projections, (V, N, D), that the views of an image have half in common."""
    rng = torch.Generator().manual_seed(seed)
    shared = torch.randn(N, D, generator=rng, dtype=torch.float64)
    return (shared + 0.5 * torch.randn(V, N, D, generator=rng, dtype=torch.float64) + 0.2).to(dtype)


def gradient(loss: Callable[[Tensor], LossTerms], z: Tensor) -> tuple[LossTerms, Tensor]:
    z = z.detach().requires_grad_()
    terms = loss(z)
    (grad,) = torch.autograd.grad(terms.total, z)
    return terms, grad


def near_collapse(V: int, N: int, D: int) -> Tensor:
    """One direction for all images, with a spread of 1e-2 that is itself nearly of rank 1."""
    rng = torch.Generator().manual_seed(0)
    line = torch.randn(N, 1, generator=rng) * torch.randn(1, D, generator=rng)
    noise = line + 0.1 * torch.randn(N, D, generator=rng) + 0.05 * torch.randn(V, N, D, generator=rng)
    return torch.randn(D, generator=rng) + 1e-2 * noise


def descend(
    loss: Callable[[Tensor], Tensor], z: Tensor, *, steps: int = 500, lr: float = 0.02
) -> tuple[float, float, float]:
    """Return the loss before and after, and the factor by which the effective rank rose (centered)."""
    z = z.clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=lr)
    before = effective_rank(gram(center(z))).item()
    totals = []
    for _ in range(steps):
        optimizer.zero_grad()
        total = loss(z)
        total.backward()
        optimizer.step()
        totals.append(total.item())
    return totals[0], totals[-1], effective_rank(gram(center(z))).item() / before
