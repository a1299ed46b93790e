"""Parameter groups and the optimizers by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from frossl.config import Optim
from frossl.optim.lars import LARS


def build_optimizer(
    model: nn.Module,
    optim: Optim,
    *,
    lr: float,
    scales: Mapping[str, float] | None = None,
    spared: Collection[str] = (),
    maskable: bool = False,
) -> torch.optim.Optimizer:
    """Weight decay for matrices and kernels only; biases, norm layers and the `spared` names go without.

    scales: share of the rate by name, where it is not 1 (see `set_lr`). maskable: a step leaves everything as
    it is where the optimizer's `found_inf`, a tensor on the device, is 1.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            decays = p.ndim > 1 and name not in spared
            key = ((scales or {}).get(name, 1.0), optim.weight_decay if decays else 0.0)
            groups.setdefault(key, []).append(p)
    options: list[dict[str, Any]] = [
        {"params": parameters, "lr": lr * scale, "lr_scale": scale, "weight_decay": weight_decay}
        for (scale, weight_decay), parameters in groups.items()
    ]
    fused = True if maskable else None  # torch's own way to mask
    if optim.optimizer == "lars":
        return LARS(options, lr, momentum=optim.momentum)
    if optim.optimizer == "sgd":
        return torch.optim.SGD(options, lr, momentum=optim.momentum, fused=fused)
    if optim.optimizer == "adam":
        return torch.optim.Adam(options, lr, fused=fused)
    return torch.optim.AdamW(options, lr, fused=fused)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]
