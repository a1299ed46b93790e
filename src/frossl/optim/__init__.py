"""How weights move: LARS, parameter groups, schedules as pure functions of the step."""

from frossl.optim.groups import build_optimizer
from frossl.optim.lars import LARS
from frossl.optim.schedule import cosine, linear, warmup_cosine

__all__ = ["LARS", "build_optimizer", "cosine", "linear", "warmup_cosine"]
