"""A bad step once more, slowly: where does it go wrong?"""

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
from frossl.types import own_random_numbers


@dataclass(frozen=True)
class Replay:
    """What a step did when it was made again."""

    step: int
    error: BadStepError | None
    """None where the step is finite this time."""
    place: str
    """The first module whose output is not finite; empty if none is."""
    largest: dict[str, float]
    """The largest output of each module so far, largest first."""


def replay(state: State, step: int) -> Replay:
    """Go from the checkpoint to that step without writing anything, and look at what every module gives."""
    with own_random_numbers():
        for batch, clock in state.loader.batches(state.step):
            state.set_lr(clock)
            if clock.step < step:
                train_step(state.to_device(batch), state, clock)
                continue
            error = None
            with _listening(state.method) as heard:
                try:
                    train_step(state.to_device(batch), state, clock)
                    state.guard.look_back()
                except BadStepError as bad:
                    error = bad
            place = next((name for name, size in heard.items() if size == torch.inf), "")
            ordered = dict(sorted(heard.items(), key=lambda pair: -pair[1]))
            return Replay(step, error, place, ordered)
    raise AssertionError(f"step {step} lies beyond the run's end")


@contextmanager
def _listening(networks: nn.Module) -> Iterator[dict[str, float]]:
    """Module name -> the largest absolute value it has given, in the order of the forward pass."""
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
