"""Parameter groups, and optimizers by name."""

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
    """Build the optimizer of a model, with weight decay for matrices and kernels only.

    Args:
        model: Network whose parameters with `requires_grad` are optimized.
        optim: Name of the optimizer, momentum and weight decay.
        lr: Learning rate.
        scales: Factor on the learning rate by parameter name; 1 for names not in it. See `set_lr`.
        spared: Names of further parameters without weight decay, besides biases and norm layers.
        maskable: Build an optimizer whose step changes nothing where its `found_inf`, a tensor on the device,
            is 1.

    Returns:
        The optimizer; the factor of each parameter group is its `lr_scale`.
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
    fused = True if maskable else None  # only torch's fused kernels read found_inf
    if optim.optimizer == "lars":
        return LARS(options, lr, momentum=optim.momentum)
    if optim.optimizer == "sgd":
        return torch.optim.SGD(options, lr, momentum=optim.momentum, fused=fused)
    if optim.optimizer == "adam":
        return torch.optim.Adam(options, lr, fused=fused)
    return torch.optim.AdamW(options, lr, fused=fused)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group to `lr` times its `lr_scale`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]
