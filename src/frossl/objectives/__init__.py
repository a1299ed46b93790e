"""Objectives: projections (V, N, D) -> LossTerms. Mathematics only: no collectives, no logging."""

from __future__ import annotations

from torch import nn

from frossl.objectives.frossl import FroSSLLoss, frossl_loss

OBJECTIVES: dict[str, type[nn.Module]] = {"frossl": FroSSLLoss}

__all__ = ["OBJECTIVES", "FroSSLLoss", "frossl_loss"]
