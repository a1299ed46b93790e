"""Prototypes: learned directions that embeddings are compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Prototypes(nn.Module):
    """Layer from embeddings (…, D) to their cosines with K prototypes (…, K).

    Args:
        dim: Length D of the embeddings.
        count: Number K of prototypes.
        weight_norm: Whether the forward pass scales the rows of `weight` to unit length, with gradient
            (DINO's last layer). Otherwise call `renormalize` after each update (SwAV).
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
        """Scale the prototypes to unit length in place."""
        self.weight.copy_(F.normalize(self.weight, dim=1))
