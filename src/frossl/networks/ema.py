"""A teacher: a copy of the student that follows it slowly."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import frossl.compat  # noqa: F401  before timm, which imports torchvision

from timm.layers import DropPath  # isort: skip

Module = TypeVar("Module", bound=nn.Module)


def teacher_of(student: Module) -> Module:
    """A copy without gradient that skips no block; its BatchNorm statistics move with the student's."""
    teacher = copy.deepcopy(student).requires_grad_(False)
    for module in teacher.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 0.0
        if isinstance(module, DropPath):
            module.drop_prob = 0.0
    return teacher


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, *, momentum: float) -> None:
    """teacher ← momentum · teacher + (1 − momentum) · student, weights and BatchNorm statistics."""
    held = [*teacher.parameters(), *teacher.buffers()]
    for old, new in zip(held, [*student.parameters(), *student.buffers()], strict=True):
        if old.is_floating_point():
            old.lerp_(new, 1 - momentum)
        else:
            old.copy_(new)
