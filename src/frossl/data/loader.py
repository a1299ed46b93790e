"""Batches in an order that is a pure function of (seed, epoch), read a little ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Tensor

from frossl.data.sources import Source
from frossl.types import Batch, Clock

READ_AHEAD = 2


WINDOW = 16
"""Of more archives than these, so many are read at a time: their images are shuffled among each other."""


@lru_cache(maxsize=2)  # asked for once a step; a million ids take tens of milliseconds to shuffle
def epoch_order(images: int, *, seed: int, epoch: int, shard_ends: tuple[int, ...] = ()) -> Tensor:
    """Every id once, shuffled; those of many archives one window of archives after the other, so that a
    disk or a network reads each from its beginning to its end, and memory holds no more than a window."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    if len(shard_ends) <= WINDOW:
        return torch.randperm(images, generator=generator)
    bounds = list(zip((0, *shard_ends), shard_ends, strict=False))
    windows = torch.randperm(len(bounds), generator=generator).split(WINDOW)
    ids = [torch.cat([torch.arange(*bounds[shard]) for shard in window.tolist()]) for window in windows]
    return torch.cat([among[torch.randperm(len(among), generator=generator)] for among in ids])


class Loader:
    """Iterates (batch, clock) from any step on. The last images of an epoch that do not fill a batch wait
    for another epoch; a source smaller than a batch gives batches of all its images.

    rank, processes: each process reads its share of every batch, one after the other in the batch's order,
    so that a step's images are the same for any number of processes. steps: the end, in place of `epochs`.
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
        self.steps_per_epoch = len(source) // self.batch_size
        self.total = steps or epochs * self.steps_per_epoch
        self.last = min(self.total, max_steps) if max_steps is not None else self.total

    def clock(self, step: int) -> Clock:
        return Clock(step, self.total, step // self.steps_per_epoch, self.seed)

    def ids(self, step: int) -> Tensor:
        """Of the whole batch."""
        epoch, ends = step // self.steps_per_epoch, self.source.shard_ends
        order = epoch_order(len(self.source), seed=self.seed, epoch=epoch, shard_ends=ends)
        start = step % self.steps_per_epoch * self.batch_size
        return order[start : start + self.batch_size]

    def share(self, step: int) -> Tensor:
        """Of this process."""
        return self.ids(step).tensor_split(self.processes)[self.rank]

    def batches(self, start: int = 0) -> Iterator[tuple[Batch, Clock]]:
        with ThreadPoolExecutor(1, thread_name_prefix="loader") as reader:
            pending: deque[Future[Batch]] = deque()
            for step in range(start, self.last + READ_AHEAD):
                if step < self.last:
                    pending.append(reader.submit(self.source.read, self.share(step)))
                if step >= start + READ_AHEAD:
                    yield pending.popleft().result(), self.clock(step - READ_AHEAD)
