"""Measure where the time of a step goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")

PARTS = ("data", "views", "forward", "loss", "backward", "update", "diagnostics")


class Stopwatch:
    """Seconds by part of a step, since they were last read.

    A device that works on its own would have to be waited for; there, only the waiting for data is timed.
    """

    def __init__(self, device: torch.device) -> None:
        self.everything = device.type == "cpu"
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        if self.everything or part == "data":
            self._seconds[part] += time.perf_counter() - began

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; the time spent waiting for each counts as `data`."""
        coming = iter(items)
        while True:
            with self("data"):
                item = next(coming, None)
            if item is None:
                return
            yield item

    def read(self, steps: int) -> dict[str, float]:
        """Return and reset the milliseconds per step, as `ms_data` and so on."""
        told = {f"ms_{part}": round(1e3 * self._seconds[part] / max(steps, 1), 3) for part in PARTS}
        known = {name: value for name, value in told.items() if self.everything or name == "ms_data"}
        self._seconds.clear()
        return known
