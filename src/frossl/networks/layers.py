"""Layers of a backbone, in timm's grouping: freezing, layer-wise learning rates, and BatchNorm modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import frossl.compat  # noqa: F401  before timm, which imports torchvision
from frossl.errors import ConfigError, InputError

from timm.layers import DropPath, convert_sync_batchnorm  # isort: skip
from timm.models import group_parameters  # isort: skip

Module = TypeVar("Module", bound=nn.Module)

FROZEN_FLAG = "frozen"
"""Attribute that marks a module that stays in evaluation mode."""


def layers_of(backbone: nn.Module) -> Mapping[str, int]:
    """Return the layer index of each parameter by name: 0 is the stem, then block after block.

    Raises:
        InputError: If timm defines no grouping for the backbone.
    """
    grouping: Any = getattr(backbone, "group_matcher", None)
    if grouping is None:
        raise InputError(
            f"timm does not say which layers {type(backbone).__name__} has; "
            "leave out network.freeze and optim.layer_decay, or choose another backbone"
        )
    layers: Mapping[str, int] = group_parameters(backbone, grouping(coarse=False), reverse=True)
    return layers


def layerwise_lr_scales(backbone: nn.Module, *, decay: float) -> dict[str, float]:
    """Return the learning-rate factor of each parameter by name: decay^(number of layers after its own)."""
    layers = layers_of(backbone)
    last = max(layers.values())
    return {name: decay ** (last - layer) for name, layer in layers.items()}


def freeze_layers(backbone: nn.Module, count: int) -> None:
    """Freeze the first `count` layers, including their BatchNorm statistics; their drop path is off.

    Raises:
        ConfigError: If the backbone has fewer layers.
    """
    layers = layers_of(backbone)
    total = 1 + max(layers.values())
    if count > total:
        raise ConfigError("network.freeze", count, f"the backbone has {total} layers")
    frozen = {name for name, layer in layers.items() if layer < count}
    for name, p in backbone.named_parameters():
        if name in frozen:
            p.requires_grad_(False)
    for name, module in backbone.named_modules():
        own = [key for key, _ in module.named_parameters(prefix=name)]
        if not own or not frozen.issuperset(own):
            continue
        for part in module.modules():
            if isinstance(part, (_BatchNorm, DropPath)):
                setattr(part, FROZEN_FLAG, True)
    keep_frozen(backbone)


def synchronized(networks: Module) -> Module:
    """Return the networks with BatchNorm synchronized across processes, except for frozen layers."""
    frozen = [name for name, part in networks.named_modules() if getattr(part, FROZEN_FLAG, False)]
    converted: Module = convert_sync_batchnorm(networks)
    for name in frozen:
        setattr(converted.get_submodule(name), FROZEN_FLAG, True)
    keep_frozen(converted)
    return converted


def keep_frozen(module: nn.Module) -> None:
    """Put frozen layers back into evaluation mode; call it after `train()`."""
    for part in module.modules():
        if getattr(part, FROZEN_FLAG, False):
            part.eval()


@contextmanager
def frozen_batch_norm(networks: nn.Module) -> Iterator[None]:
    """Return a context in which BatchNorm normalizes as in training, but keeps its running statistics."""
    norms = [m for m in networks.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
