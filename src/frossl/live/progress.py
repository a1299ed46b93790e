"""Console that survives a closed pipe, plain lines for pipes and log files, and progress bars."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from frossl.live.run_view import RunView
from frossl.runs import DiagnosticRecord, StepRecord
from frossl.text import encodable, sanitize, sanitize_lines


class NonBlockingConsole(Console):
    """Console for all output of the library.

    A closed pipe does not end the run. File names and labels may contain anything, so that text is never
    interpreted as markup and control characters are escaped.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=sanitize_lines(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True


class PlainLines:
    """Display of a run as occasional plain lines, for pipes and log files."""

    def __init__(self, console: Console, view: RunView, *, every: float = 15.0) -> None:
        """Prepare the display.

        Args:
            console: Console to print to.
            view: State of the run to show.
            every: Smallest number of seconds between two lines about the progress.
        """
        self.console, self.view, self.every = console, view, every
        self.last_time, self.last_step = float("-inf"), -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        return None

    def step(self, step: int, total: int, record: StepRecord | None) -> None:
        self.view.step(step, total, record)
        now = time.monotonic()
        if record is not None and (now - self.last_time >= self.every or step >= total):
            self.last_time = now
            self.show()

    def show(self) -> None:
        """Print the progress, unless the last line was of the same step."""
        if self.view.now != self.last_step:
            self.last_step = self.view.now
            self.message(self.view.line())

    def diagnostic(self, record: DiagnosticRecord) -> None:
        if verdict := self.view.diagnostic(record):
            self.message(f"step {record.step}: {verdict}")

    def note(self, text: str) -> None:
        """Ignore a minor event: plain lines show only important ones."""

    def message(self, text: str) -> None:
        """Print one line, with characters escaped that the output cannot encode."""
        line = encodable(sanitize(text), self.console.encoding)
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class ProgressBar:
    """Progress bar for work of known length; prints nothing to a pipe."""

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
