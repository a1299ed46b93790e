"""What pipes and log files get, and bars for work of a known length."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from frossl.live.story import Story
from frossl.live.words import encodable, harmless, harmless_lines


class Patient(Console):
    """The console that everything is printed by. Its reader may go away: whoever stops listening must not end
    a run. Names may hold anything: they are neither markup nor orders to the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless_lines(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True


class PlainLines:
    """A line now and then, for pipes and log files."""

    def __init__(self, console: Console, story: Story, *, every: float = 15.0) -> None:
        self.console, self.story, self.every = console, story, every
        self.last, self.shown = float("-inf"), -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        return None

    def step(self, step: int, total: int, record: dict[str, Any] | None) -> None:
        self.story.step(step, total, record)
        now = time.monotonic()
        if record is not None and (now - self.last >= self.every or step >= total):
            self.last = now
            self.show()

    def show(self) -> None:
        """Where it is, unless that was the last line."""
        if self.story.now != self.shown:
            self.shown = self.story.now
            self.tell(self.story.line())

    def look(self, record: dict[str, Any]) -> None:
        if told := self.story.look(record):
            self.tell(f"step {record.get('step', self.story.now)}: {told}")

    def note(self, text: str) -> None:
        """For those who look closely: not here."""

    def tell(self, text: str) -> None:
        line = encodable(harmless(text), self.console.encoding)
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


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
