"""What flows between the rooms.

Axis letters, everywhere: V views, N images, C channels, S pixels, F features, D projections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from frossl.errors import InputError

_TURNS = threading.RLock()


@contextmanager
def own_random_numbers(devices: Sequence[torch.device | int] = ()) -> Iterator[None]:
    """Draw from torch's global generators, and leave them as they were: of the CPU and of these CUDA devices.

    They are one for all threads of a process. So whoever draws from them takes turns here with all others: a
    training, from its first step to its last, and everything that draws weights.
    """
    with _TURNS, torch.random.fork_rng(devices=list(devices)):
        yield


@dataclass(frozen=True)
class Batch:
    """Images as they are stored, and their ids. No labels, no floats."""

    images: Tensor
    """uint8 (N, C, H, W)."""
    ids: Tensor
    """int64 (N,): rows of the index."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Clock:
    """Where a run stands. Schedules and random numbers are functions of this, never of history."""

    step: int
    total: int
    epoch: int
    seed: int

    def due(self, every: int) -> bool:
        """True once in `every` steps, and on the last step."""
        return (self.step + 1) % every == 0 or self.step + 1 == self.total

    def generator(self) -> torch.Generator:
        """Random numbers of this step: the same on every process, and after a resume."""
        return torch.Generator().manual_seed(self.seed * 1_000_003 + self.step)


@dataclass(frozen=True)
class LossTerms:
    """What an objective returns: the loss, and the numbers it is made of."""

    total: Tensor
    """Scalar; carries the gradient."""
    parts: dict[str, Tensor]
    """The weighted terms, detached; they sum to `total`."""
    extras: dict[str, Tensor] = field(default_factory=dict)
    """Detached numbers that came for free, such as `effective_rank`."""
    state: dict[str, Tensor] = field(default_factory=dict)
    """New running state, detached; kept by whoever owns the old one."""

    @classmethod
    def of(
        cls,
        *,
        extras: dict[str, Tensor] | None = None,
        state: dict[str, Tensor] | None = None,
        **parts: Tensor,
    ) -> LossTerms:
        def detached(tensors: dict[str, Tensor] | None) -> dict[str, Tensor]:
            return {name: tensor.detach() for name, tensor in (tensors or {}).items()}

        total = torch.stack(list(parts.values())).sum()
        return cls(total, detached(parts), detached(extras), detached(state))

    def to_floats(self) -> dict[str, float]:
        """`loss`, every part and every extra as Python floats: one wait for the device in all."""
        named = {"loss": self.total.detach(), **self.parts, **self.extras}
        return dict(zip(named, torch.stack([x.to(self.total) for x in named.values()]).tolist(), strict=True))


Look = Callable[[Tensor, dict[str, Tensor], Clock], Mapping[str, float] | None]


@dataclass(frozen=True)
class Watch:
    """Somebody who looks at a step now and then: the numbers it returns go to diagnostics.jsonl.

    It gets the ids (N,) of the step's images, its `features` (V, N, F) and `z` (V, N, D), detached, and the
    clock. Nothing it does changes the run: every step draws its random numbers anew from the clock.
    """

    every: int
    """Once in so many steps, and on the last one."""
    look: Look

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"a watch looks every {self.every} steps; give at least 1")
