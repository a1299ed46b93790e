"""Teacher network: an exponential moving average (EMA) of the student."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import frossl.compat  # noqa: F401  before timm, which imports torchvision

from timm.layers import DropPath  # isort: skip

Module = TypeVar("Module", bound=nn.Module)


def make_teacher(student: Module) -> Module:
    """Return a copy of the student without gradients, for `ema_update`.

    Its drop path is off, and its BatchNorm statistics do not move on their own: they are averaged, too.
    """
    teacher = copy.deepcopy(student).requires_grad_(False)
    for module in teacher.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 0.0
        if isinstance(module, DropPath):
            module.drop_prob = 0.0
    return teacher


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, *, momentum: float) -> None:
    """Update weights and BatchNorm statistics of the teacher in place.

    teacher ← momentum · teacher + (1 − momentum) · student
    """
    tensors = [*teacher.parameters(), *teacher.buffers()]
    for old, new in zip(tensors, [*student.parameters(), *student.buffers()], strict=True):
        if old.is_floating_point():
            old.lerp_(new, 1 - momentum)
        else:
            old.copy_(new)
