"""The engine owns time and processes: it builds a run from its configuration, and walks its steps."""

from frossl.engine.build import State, best_device, build, build_method, check, settle
from frossl.engine.checkpoint import restore, save
from frossl.engine.loop import Screen, fit

__all__ = [
    "Screen",
    "State",
    "best_device",
    "build",
    "build_method",
    "check",
    "fit",
    "restore",
    "save",
    "settle",
]
