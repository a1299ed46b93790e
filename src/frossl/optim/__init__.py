"""Optimizers, parameter groups, and schedules as pure functions of the step."""

from frossl.optim.groups import build_optimizer, set_lr
from frossl.optim.lars import LARS
from frossl.optim.schedule import cosine, linear, warmup_cosine, warmup_stable_decay

__all__ = ["LARS", "build_optimizer", "cosine", "linear", "set_lr", "warmup_cosine", "warmup_stable_decay"]
