"""Parameter groups and the optimizers by name."""

from __future__ import annotations

import torch
from torch import nn

from frossl.config import Optim
from frossl.optim.lars import LARS


def build_optimizer(model: nn.Module, optim: Optim, *, lr: float) -> torch.optim.Optimizer:
    """Weight decay for matrices and kernels only; biases and norm layers go without."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": optim.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if optim.optimizer == "lars":
        return LARS(groups, lr)
    return torch.optim.AdamW(groups, lr)
