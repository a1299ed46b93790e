"""The engine owns time and processes: it builds a run from its configuration, and walks its steps."""

from frossl.engine.build import (
    State,
    best_device,
    best_view_kernel,
    build,
    build_method,
    check,
    max_steps,
    settle,
)
from frossl.engine.checkpoint import checkpoint_steps, method_at, restore, save
from frossl.engine.gather import barrier, everyones, processes, rank
from frossl.engine.launch import launch, talking
from frossl.engine.loop import Screen, fit
from frossl.engine.replay import Replay, replay
from frossl.engine.trial import Memory, Trial, free_memory, memory_of, try_out

__all__ = [
    "Memory",
    "Replay",
    "Screen",
    "State",
    "Trial",
    "barrier",
    "best_device",
    "best_view_kernel",
    "build",
    "build_method",
    "check",
    "checkpoint_steps",
    "everyones",
    "fit",
    "free_memory",
    "launch",
    "max_steps",
    "memory_of",
    "method_at",
    "processes",
    "rank",
    "replay",
    "restore",
    "save",
    "settle",
    "talking",
    "try_out",
]
