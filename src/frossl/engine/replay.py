"""Repeat a step that was not finite, and find the module where it goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from frossl.engine.build import State
from frossl.engine.step import train_step
from frossl.errors import BadStepError
from frossl.types import isolated_rng


@dataclass(frozen=True)
class Replay:
    """Result of a repeated step."""

    step: int
    error: BadStepError | None
    """The error; None if the step is finite this time."""
    place: str
    """First module whose output is not finite; empty if there is none."""
    largest: dict[str, float]
    """Largest absolute output by module, largest first."""


def replay(state: State, step: int) -> Replay:
    """Train from the checkpoint to a step without writing anything, and record the output of every module."""
    with isolated_rng():
        for batch, clock in state.loader.batches(state.step):
            state.set_lr(clock)
            if clock.step < step:
                train_step(state.to_device(batch), state, clock)
                continue
            error = None
            with _listening(state.method) as heard:
                try:
                    train_step(state.to_device(batch), state, clock)
                    state.guard.check_last()
                except BadStepError as bad:
                    error = bad
            place = next((name for name, size in heard.items() if size == torch.inf), "")
            ordered = dict(sorted(heard.items(), key=lambda pair: -pair[1]))
            return Replay(step, error, place, ordered)
    raise AssertionError(f"step {step} lies beyond the run's end")


@contextmanager
def _listening(networks: nn.Module) -> Iterator[dict[str, float]]:
    """Record the largest absolute output by module name, in the order of the forward pass."""
    heard: dict[str, float] = {}

    def listen(name: str) -> Any:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.is_floating_point():
                size = output.detach().abs().nan_to_num(torch.inf, torch.inf).max().item()
                heard[name] = max(heard.get(name, 0.0), size)

        return hook

    leaves = [(name, part) for name, part in networks.named_modules() if not list(part.children())]
    handles = [part.register_forward_hook(listen(name)) for name, part in leaves]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()
