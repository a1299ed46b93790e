"""Loader of batches, in an order that is a pure function of (seed, epoch), with prefetching."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Tensor

from frossl.config import steps_per_epoch
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
        seed: Seed of the order.
        max_steps: Step at which the iteration ends early; the clock's total stays the same.
        rank: Number of this process.
        processes: Number of processes.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        epochs: int,
        steps: int | None = None,
        seed: int,
        max_steps: int | None = None,
        rank: int = 0,
        processes: int = 1,
    ):
        self.source, self.seed = source, seed
        self.rank, self.processes = rank, processes
        self.batch_size = min(batch_size, len(source))
        self.steps_per_epoch = steps_per_epoch(len(source), batch_size)
        self.total = steps or epochs * self.steps_per_epoch
        self.last = min(self.total, max_steps) if max_steps is not None else self.total

    def clock(self, step: int) -> Clock:
        """Return the clock of a step."""
        return Clock(step, self.total, step // self.steps_per_epoch, self.seed)

    def ids(self, step: int) -> Tensor:
        """Return the ids of a step's whole batch."""
        epoch, ends = step // self.steps_per_epoch, self.source.shard_ends
        order = epoch_order(len(self.source), seed=self.seed, epoch=epoch, shard_ends=ends)
        start = step % self.steps_per_epoch * self.batch_size
        return order[start : start + self.batch_size]

    def share(self, step: int) -> Tensor:
        """Return the ids of a step that this process reads."""
        return self.ids(step).tensor_split(self.processes)[self.rank]

    def batches(self, start: int = 0) -> Iterator[tuple[Batch, Clock]]:
        """Yield the batches of this process and their clocks, from step `start` on."""
        with ThreadPoolExecutor(1, thread_name_prefix="loader") as reader:
            pending: deque[Future[Batch]] = deque()
            for step in range(start, self.last + READ_AHEAD):
                if step < self.last:
                    pending.append(reader.submit(self.source.read, self.share(step)))
                if step >= start + READ_AHEAD:
                    yield pending.popleft().result(), self.clock(step - READ_AHEAD)
