"""A progress bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Patient(Console):
    """A console whose reader may go away: whoever stops listening must not end a run."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def describe(record: dict[str, Any], largest_rank: int) -> str:
    """`loss −9.81  rank 87/128  540 images/s  learning` from one line of the record."""
    words = [f"loss {record['loss']:.3f}"]
    if "effective_rank" in record:
        words.append(f"rank {record['effective_rank']:.0f}/{largest_rank}")
    if "images_per_second" in record:
        words.append(f"{record['images_per_second']:,.0f} images/s")
    if "verdict" in record:
        words.append(record["verdict"])
    return "  ".join(words)


class Bar:
    """Steps done, time left, loss, rank and speed on one line."""

    def __init__(self, console: Console, *, largest_rank: int, start: int = 0) -> None:
        self.largest_rank = largest_rank
        self.progress = Progress(
            BarColumn(bar_width=14),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
            speed_estimate_period=60,
        )
        self.task = self.progress.add_task("training", total=None, numbers="", completed=start)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.progress.stop()

    def step(self, step: int, total: int, record: dict[str, Any] | None) -> None:
        self.progress.update(self.task, completed=step, total=total)
        if record:
            self.progress.update(self.task, numbers=describe(record, self.largest_rank))

    def tell(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


class PlainLines:
    """A line now and then, for pipes and log files."""

    def __init__(self, console: Console, *, largest_rank: int, every: float = 15.0, start: int = 0) -> None:
        self.console, self.largest_rank, self.every = console, largest_rank, every
        self.began, self.first, self.last = time.monotonic(), start, float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        return None

    def step(self, step: int, total: int, record: dict[str, Any] | None) -> None:
        now = time.monotonic()
        if record is None or (now - self.last < self.every and step < total):
            return
        self.last = now
        left = (now - self.began) / (step - self.first) * (total - step)
        minutes = f"{int(left) // 60}:{int(left) % 60:02d} left"
        self.console.print(
            f"step {step}/{total}  {minutes}  {describe(record, self.largest_rank)}", highlight=False
        )

    def tell(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Counting:
    """A bar for work of a known length; in a pipe, nothing."""

    def __init__(self, console: Console, what: str) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=14),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task(what, total=None)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.progress.stop()

    def update(self, done: int, total: int) -> None:
        self.progress.update(self.task, completed=done, total=total)
