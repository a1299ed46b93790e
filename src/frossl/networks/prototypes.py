"""Prototypes: directions that embeddings are compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Prototypes(nn.Module):
    """Cosines of (N, D) with K unit rows."""

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(count, dim), dim=1))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x, dim=-1), self.weight)

    @torch.no_grad()
    def renormalize(self) -> None:
        self.weight.copy_(F.normalize(self.weight, dim=1))
