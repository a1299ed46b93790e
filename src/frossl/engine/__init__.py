"""Build a run from its configuration and train it, on one process or many."""

from frossl.engine.build import (
    State,
    build,
    build_encoder,
    build_method,
    crops_whole_images,
    initial_backbone,
)
from frossl.engine.checkpoint import backbone_at, checkpoint_steps, restore, save
from frossl.engine.fastest import Speedups, choose_fastest, undecided
from frossl.engine.gather import all_gather_object, barrier, processes, rank
from frossl.engine.launch import cpu_threads, launch, talking
from frossl.engine.loop import fit
from frossl.engine.recorder import Display
from frossl.engine.replay import Replay, replay
from frossl.engine.settle import best_device, best_view_kernel, check, max_steps, settle
from frossl.engine.step_timing import (
    MemoryEstimate,
    StepTiming,
    estimate_memory,
    free_memory,
    time_encoder,
    time_steps,
)

__all__ = [
    "Display",
    "MemoryEstimate",
    "Replay",
    "Speedups",
    "State",
    "StepTiming",
    "all_gather_object",
    "backbone_at",
    "barrier",
    "best_device",
    "best_view_kernel",
    "build",
    "build_encoder",
    "build_method",
    "check",
    "checkpoint_steps",
    "choose_fastest",
    "cpu_threads",
    "crops_whole_images",
    "estimate_memory",
    "fit",
    "free_memory",
    "initial_backbone",
    "launch",
    "max_steps",
    "processes",
    "rank",
    "replay",
    "restore",
    "save",
    "settle",
    "talking",
    "time_encoder",
    "time_steps",
    "undecided",
]
