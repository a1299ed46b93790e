"""Types that the packages of frossl exchange.

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

_GLOBAL_RNG_LOCK = threading.RLock()


@contextmanager
def isolated_rng(devices: Sequence[torch.device | int] = ()) -> Iterator[None]:
    """Save torch's global random number generators on entry and restore them on exit.

    All threads of a process share these generators, so a lock lets only one thread at a time into the block:
    a training run, from its first step to its last, and everything that initializes weights.

    Args:
        devices: CUDA devices whose generators are restored too, besides the CPU's.
    """
    with _GLOBAL_RNG_LOCK, torch.random.fork_rng(devices=list(devices)):
        yield


@dataclass(frozen=True)
class Batch:
    """Decoded images and their ids, without labels."""

    images: Tensor
    """Images, uint8 (N, C, H, W); smaller ones are padded on the right and below."""
    ids: Tensor
    """Ids of the images, int64 (N,): their rows in the index."""
    sizes: Tensor | None = None
    """Height and width of each image without its padding, int64 (N, 2); None if none is padded."""

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Tensor) -> Batch:
        """Return some of the images, by a mask (N,) or by their rows.

        On a CPU padding that none of them needs is left out; elsewhere that would wait for the device.
        """
        if self.sizes is None:
            return Batch(self.images[rows], self.ids[rows])
        images, sizes = self.images, self.sizes[rows]
        if sizes.device.type == "cpu" and len(sizes):
            height, width = sizes.amax(0).tolist()
            images = images[..., :height, :width]
        return Batch(images[rows], self.ids[rows], sizes)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on a device."""
        sizes = None if self.sizes is None else self.sizes.to(device)
        return Batch(self.images.to(device), self.ids.to(device), sizes)

    def unpadded(self) -> list[Tensor]:
        """Return each image (C, H, W) without its padding."""
        if self.sizes is None:
            return list(self.images)
        sizes = self.sizes.tolist()
        return [image[:, :height, :width] for image, (height, width) in zip(self.images, sizes, strict=True)]


@dataclass(frozen=True)
class Clock:
    """Position of a run. Schedules and random numbers are functions of the clock, never of the history."""

    step: int
    """Number of the current step, from 0 on."""
    total: int
    """Number of steps of the run, which may change while a run with a time budget trains."""
    epoch: int
    """Number of the current epoch, from 0 on."""
    seed: int
    """Seed of the run."""
    place: tuple[float, int] | None = None
    """Position in the schedules, if it is not `step` of `total`; read it from `schedule`."""

    @property
    def schedule(self) -> tuple[float, int]:
        """Position in the schedules of rates and temperatures, and their length.

        They are `step` and `total`, until the number of steps of a run with a time budget changes: the
        position then moves on in larger or smaller steps, from where it was to the same end.
        """
        return self.place or (self.step, self.total)

    def due(self, every: int) -> bool:
        """Return True once every `every` steps, and at the last step."""
        return (self.step + 1) % every == 0 or self.step + 1 == self.total

    def generator(self) -> torch.Generator:
        """Return a generator seeded for this step: the same on every process and after a resume."""
        return torch.Generator().manual_seed(self.seed * 1_000_003 + self.step)


@dataclass(frozen=True)
class LossTerms:
    """Result of an objective: the loss, and the terms that it is the sum of."""

    total: Tensor
    """Loss, a scalar tensor that carries the gradient."""
    parts: dict[str, Tensor]
    """Weighted terms of the loss by name, detached; they sum to `total`."""
    extras: dict[str, Tensor] = field(default_factory=dict)
    """Other numbers that cost nothing extra to compute, such as `effective_rank`, detached."""
    state: dict[str, Tensor] = field(default_factory=dict)
    """Updated running state, detached; the caller stores it and passes it to the next call."""

    @classmethod
    def of(
        cls,
        *,
        extras: dict[str, Tensor] | None = None,
        state: dict[str, Tensor] | None = None,
        **parts: Tensor,
    ) -> LossTerms:
        """Build the result from its terms.

        Args:
            extras: Other numbers, by name.
            state: Updated running state, by name.
            **parts: Weighted terms of the loss; their sum becomes `total`.
        """

        def detached(tensors: dict[str, Tensor] | None) -> dict[str, Tensor]:
            return {name: tensor.detach() for name, tensor in (tensors or {}).items()}

        total = torch.stack(list(parts.values())).sum()
        return cls(total, detached(parts), detached(extras), detached(state))

    def to_floats(self) -> dict[str, float]:
        """Return `loss`, every part and every extra as Python floats, with one device synchronization."""
        named = {"loss": self.total.detach(), **self.parts, **self.extras}
        return dict(zip(named, torch.stack([x.to(self.total) for x in named.values()]).tolist(), strict=True))


CallbackFunction = Callable[[Tensor, dict[str, Tensor], Clock], Mapping[str, float] | None]
"""Signature of a callback's function; see `Callback`."""


@dataclass(frozen=True)
class Callback:
    """Function that is called with tensors of a training step; its numbers go to `diagnostics.jsonl`.

    Args:
        every: Number of steps between two calls; the last step always calls it.
        function: Function of the ids (N,) of the step's images, a dict with `features` (V, N, F) and `z`
            (V, N, D), detached, and the clock. It returns numbers by name, or None. Nothing it does changes
            the run: every step seeds its random numbers from the clock.
    """

    every: int
    function: CallbackFunction

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"a callback is called every {self.every} steps; give at least 1")


class Watch(Callback):
    """Deprecated since 0.2.0: use `Callback`. This class has its earlier argument names."""

    def __init__(self, every: int, look: CallbackFunction) -> None:
        super().__init__(every, look)
