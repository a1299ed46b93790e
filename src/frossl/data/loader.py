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


@lru_cache(maxsize=2)  # asked for once a step; a million ids take tens of milliseconds to shuffle
def epoch_order(images: int, *, seed: int, epoch: int) -> Tensor:
    """Every id once, shuffled."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    return torch.randperm(images, generator=generator)


class Loader:
    """Iterates (batch, clock) from any step on. The last images of an epoch that do not fill a batch wait
    for another epoch; a source smaller than a batch gives batches of all its images.

    rank, processes: each process reads its share of every batch, one after the other in the batch's order,
    so that a step's images are the same for any number of processes.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        epochs: int,
        seed: int,
        max_steps: int | None = None,
        rank: int = 0,
        processes: int = 1,
    ):
        self.source, self.seed = source, seed
        self.rank, self.processes = rank, processes
        self.batch_size = min(batch_size, len(source))
        self.steps_per_epoch = len(source) // self.batch_size
        self.total = epochs * self.steps_per_epoch
        self.last = min(self.total, max_steps) if max_steps is not None else self.total

    def clock(self, step: int) -> Clock:
        return Clock(step, self.total, step // self.steps_per_epoch, self.seed)

    def ids(self, step: int) -> Tensor:
        """Of the whole batch."""
        order = epoch_order(len(self.source), seed=self.seed, epoch=step // self.steps_per_epoch)
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
