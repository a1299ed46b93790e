"""Loader of batches, in an order that is a pure function of (seed, epoch), with prefetching."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Tensor

from frossl.config import Settlement, steps_per_epoch
from frossl.data.sources import Source
from frossl.types import Batch, Clock

READ_AHEAD = 2
"""Number of batches that are prefetched."""
WINDOW = 16
"""Number of archives that are read at a time if there are more; images are shuffled within such a window."""


@lru_cache(maxsize=2)  # called once a step; a million ids take tens of milliseconds to shuffle
def epoch_order(images: int, *, seed: int, epoch: int, shard_ends: tuple[int, ...] = ()) -> Tensor:
    """Return every id once, shuffled.

    With more than `WINDOW` archives, archives are shuffled and then images within each window of them, so
    that a disk or a network reads each archive from its beginning to its end, and memory holds no more than
    a window.

    Args:
        images: Number of images.
        seed: Seed of the run.
        epoch: Number of the epoch.
        shard_ends: Id after the last image of each archive; empty if there is one archive or none.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    if len(shard_ends) <= WINDOW:
        return torch.randperm(images, generator=generator)
    bounds = list(zip((0, *shard_ends), shard_ends, strict=False))
    windows = torch.randperm(len(bounds), generator=generator).split(WINDOW)
    ids = [torch.cat([torch.arange(*bounds[shard]) for shard in window.tolist()]) for window in windows]
    return torch.cat([window[torch.randperm(len(window), generator=generator)] for window in ids])


def schedule_place(step: int, planned: int, settlements: Sequence[Settlement]) -> tuple[float, int]:
    """Return the position of a step in schedules that were planned for `planned` steps, and their length.

    Each settlement changes how far a step moves the position, such that it reaches the end with the run.

    Args:
        step: The step.
        planned: Number of steps before the first settlement.
        settlements: Settlements up to this step.
    """
    position, since, total = 0.0, 0, planned
    for one in settlements:
        position += (one.step - since) * (planned - position) / (total - since)
        since, total = one.step, one.total
    return position + (step - since) * (planned - position) / (total - since), planned


class Loader:
    """Loader of batches and their clocks, from any step on.

    The last images of an epoch that do not fill a batch are left out of that epoch; a source smaller than a
    batch gives batches of all its images. Each process reads a contiguous share of every batch, so the images
    of a step are the same for any number of processes.

    Args:
        source: The images.
        batch_size: Number of images in a batch, over all processes.
        epochs: Number of epochs.
        steps: Number of steps; if given, it replaces `epochs`.
        settlements: Changes of the number of steps; the attribute may be replaced while batches are read.
        seed: Seed of the order.
        max_steps: Step at which the iteration ends early; the clock's total stays the same.
        rank: Number of this process.
        processes: Number of processes.
        whole: Whether images are read at their own aspect ratios instead of as central squares.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        epochs: int,
        steps: int | None = None,
        settlements: Sequence[Settlement] = (),
        seed: int,
        max_steps: int | None = None,
        rank: int = 0,
        processes: int = 1,
        whole: bool = True,
    ):
        self.source, self.seed, self.whole = source, seed, whole
        self.rank, self.processes = rank, processes
        self.batch_size = min(batch_size, len(source))
        self.steps_per_epoch = steps_per_epoch(len(source), batch_size)
        self.planned = steps or epochs * self.steps_per_epoch
        self.settlements, self.max_steps = tuple(settlements), max_steps

    @property
    def total(self) -> int:
        """Number of steps of the run, as settled last."""
        return self.settlements[-1].total if self.settlements else self.planned

    @property
    def last(self) -> int:
        """Number of steps at which the iteration ends."""
        return self.total if self.max_steps is None else min(self.total, self.max_steps)

    def clock(self, step: int) -> Clock:
        """Return the clock of a step, which later settlements do not change."""
        settled = [one for one in self.settlements if one.step <= step]
        total = settled[-1].total if settled else self.planned
        place = schedule_place(step, self.planned, settled) if settled else None
        return Clock(step, total, step // self.steps_per_epoch, self.seed, place)

    def step_at(self, position: float) -> int:
        """Return the first step whose position in the schedules is at least this; the last one if none is."""
        return bisect_left(range(self.total), position, key=lambda step: self.clock(step).schedule[0])

    def ids(self, step: int) -> Tensor:
        """Return the ids of a step's whole batch."""
        epoch, ends = step // self.steps_per_epoch, self.source.shard_ends
        order = epoch_order(len(self.source), seed=self.seed, epoch=epoch, shard_ends=ends)
        start = step % self.steps_per_epoch * self.batch_size
        return order[start : start + self.batch_size]

    def share(self, step: int) -> Tensor:
        """Return the ids of a step that this process reads."""
        return self.ids(step).tensor_split(self.processes)[self.rank]

    def read(self, ids: Tensor) -> Batch:
        """Read images by id, as the run trains on them."""
        return self.source.read(ids, whole=self.whole)

    def batches(self, start: int = 0) -> Iterator[tuple[Batch, Clock]]:
        """Yield the batches of this process and their clocks, from step `start` on."""
        with ThreadPoolExecutor(1, thread_name_prefix="loader") as reader:
            pending: deque[Future[Batch]] = deque()
            step = start
            while step < self.last:  # which may change between batches
                while len(pending) <= READ_AHEAD and step + len(pending) < self.last:
                    pending.append(reader.submit(self.read, self.share(step + len(pending))))
                yield pending.popleft().result(), self.clock(step)
                step += 1
