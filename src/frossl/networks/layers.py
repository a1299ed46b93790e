"""A backbone's layers from the stem on, by timm's own grouping: for freezing and for rates by depth."""

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

FROZEN = "frozen"
"""The mark of a module that stays in evaluation mode."""


def layers_of(backbone: nn.Module) -> Mapping[str, int]:
    """Parameter name -> layer: 0 is the stem, then block after block."""
    grouping: Any = getattr(backbone, "group_matcher", None)
    if grouping is None:
        raise InputError(
            f"timm does not say which layers {type(backbone).__name__} has; "
            "leave out network.freeze and optim.layer_decay, or choose another backbone"
        )
    layers: Mapping[str, int] = group_parameters(backbone, grouping(coarse=False), reverse=True)
    return layers


def rates_by_depth(backbone: nn.Module, *, decay: float) -> dict[str, float]:
    """Parameter name -> share of the rate: 1 at the last layer, `decay` times less with each one before."""
    layers = layers_of(backbone)
    last = max(layers.values())
    return {name: decay ** (last - layer) for name, layer in layers.items()}


def freeze_layers(backbone: nn.Module, count: int) -> None:
    """The first `count` layers stay as they are, statistics of BatchNorm included, and are never skipped."""
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
                setattr(part, FROZEN, True)
    keep_frozen(backbone)


def synchronized(networks: Module) -> Module:
    """The same networks with BatchNorm over the batches of all processes, frozen parts apart."""
    frozen = [name for name, part in networks.named_modules() if getattr(part, FROZEN, False)]
    converted: Module = convert_sync_batchnorm(networks)
    for name in frozen:
        setattr(converted.get_submodule(name), FROZEN, True)
    keep_frozen(converted)
    return converted


def keep_frozen(module: nn.Module) -> None:
    """Put the frozen parts (back) in evaluation mode: to be called after `train()`."""
    for part in module.modules():
        if getattr(part, FROZEN, False):
            part.eval()


@contextmanager
def still_statistics(networks: nn.Module) -> Iterator[None]:
    """BatchNorm normalizes as in training, and its running statistics stay."""
    norms = [m for m in networks.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
