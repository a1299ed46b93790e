"""Prototypes: directions that embeddings are compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Prototypes(nn.Module):
    """Cosines of (N, D) with K directions.

    weight_norm: the rows of `weight` are scaled to unit length inside, and the gradient goes through that
    (DINO's last layer); without, they are of unit length by `renormalize`, after each update (SwAV).
    """

    def __init__(self, dim: int, count: int, *, weight_norm: bool = False) -> None:
        super().__init__()
        self.weight_norm = weight_norm
        self.weight = nn.Parameter(F.normalize(torch.randn(count, dim), dim=1))

    def forward(self, x: Tensor) -> Tensor:
        weight = F.normalize(self.weight, dim=1) if self.weight_norm else self.weight
        return F.linear(F.normalize(x, dim=-1), weight)

    @torch.no_grad()
    def renormalize(self) -> None:
        self.weight.copy_(F.normalize(self.weight, dim=1))
