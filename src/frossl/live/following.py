"""Look at a run from outside: its folder is read, nothing is written."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from frossl.errors import InputError
from frossl.live.dashboard import Dashboard, Frame
from frossl.live.progress import Patient, PlainLines
from frossl.live.story import Line, Story
from frossl.runs import RunFolder, outcome_of

EVERY = 0.5
"""Seconds between two looks at the folder."""
SILENT, RECORDS = 30.0, 10
"""News are late after so many seconds, or after the time that so many records take, if that is longer."""


class Tail:
    """A file of JSON lines: each read gives what came since the last one, in whole lines."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.changed = path, 0, 0.0
        self._file = 0

    @property
    def replaced(self) -> bool:
        """Is it another file than the one that was read, or a shorter one? Then begin anew."""
        try:
            seen = self.path.stat()
        except FileNotFoundError:
            return self.offset > 0
        return self._is_other(seen)

    def _is_other(self, seen: os.stat_result) -> bool:
        return self.offset > 0 and (seen.st_ino != self._file or seen.st_size < self.offset)

    def read(self) -> list[dict[str, Any]]:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            seen = os.fstat(file.fileno())
            if self.offset == seen.st_size or self._is_other(seen):
                return []
            self._file, self.changed = seen.st_ino, seen.st_mtime
            file.seek(self.offset)
            whole, end, _ = file.read().rpartition(b"\n")  # behind it, a line that is still being written
        self.offset += len(whole) + len(end)
        return [record for line in whole.splitlines() if (record := _record(line)) is not None]


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.decode("utf-8", "surrogateescape"))
    except ValueError:  # a line that a killed process left, before another one went on
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


class Follower:
    """What a run writes, told to a screen."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self._status = folder, folder.path / "status.json"
        self._begin()

    def _begin(self) -> None:
        self.metrics, self.looks = Tail(self.folder.metrics.path), Tail(self.folder.diagnostics.path)
        self._seen: dict[Path, int] = {}

    def story(self, *, up_to: int | None = None) -> Story:
        """All so far; with `up_to`, of a run that goes on from that step."""
        story = Story.of(self.folder)
        if up_to is None:
            self._state(story)  # before the records: with the last status, all of them are written
        records, looks = (
            [record for record in tail.read() if up_to is None or record["step"] <= up_to]
            for tail in (self.metrics, self.looks)
        )
        for look in looks:
            story.look(look)
        for record in records:
            story.step(record["step"], story.total, record, fresh=False)
        story.conclude()
        if up_to is not None:
            story.begin(up_to)
        return story

    def tell(self, screen: Dashboard | PlainLines) -> None:
        """What is new."""
        if not self.folder.path.is_dir():
            raise InputError(f"the run at {self.folder.path} is gone; there is nothing left to watch")
        if self.metrics.replaced or self.looks.replaced:  # it was resumed, or begun anew
            self._begin()
            screen.story = self.story()
        self._state(screen.story)
        for look in self.looks.read():
            screen.look(look)
        for record in self.metrics.read():
            screen.step(record["step"], screen.story.total, record)
        screen.story.conclude()

    def _state(self, story: Story) -> None:
        """Status, checkpoints and bad files, where they have changed."""
        if self._changed(self._status) or not story.total:
            status = self.folder.read_status()
            if status["state"] == "finished":  # with what was measured, also by a run that is just closing
                status["verdict"] = outcome_of(self.folder)
            story.status(status)
        if self._changed(self.folder.checkpoints):
            steps = [_step(path) for path in self.folder.checkpoints.glob("step-*.pt")]
            for step in sorted(step for step in steps if Line(step, SAVED) not in story.lines):
                story.note(SAVED, step=step)
        if self._changed(self.folder.bad_files):
            count = self.folder.bad_files.read_bytes().count(b"\n")
            story.note(f"{count:,} files could not be read: {self.folder.bad_files.name}")

    def _changed(self, path: Path) -> bool:
        """Since it was last asked. Files are replaced whole; a folder changes when files come and go."""
        try:
            now = path.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        before, self._seen[path] = self._seen.get(path), now
        return now != before

    def listen(self, story: Story, silent: float) -> float:
        """Seconds without news, where that is long."""
        begun = self._seen.get(self._status) or self.folder.config_file.stat().st_mtime_ns
        pause, usual = time.time() - max(begun / 1e9, self.metrics.changed, self.looks.changed), 0.0
        if len(story.times) > 1:
            usual = story.times[-1][1] - story.times[-2][1]
        late = story.state == "running" and pause > max(silent, RECORDS * usual)
        story.silence = pause if late else 0.0
        return story.silence


SAVED = "checkpoint"


def _step(path: Path) -> int:
    digits = path.stem.removeprefix("step-")
    return int(digits) if digits.isdecimal() else 0


def screen(console: Console, folder: RunFolder, *, start: int = 0) -> Dashboard | PlainLines:
    """A dashboard in a terminal, plain lines elsewhere, for a run that is at step `start`."""
    return _screen(console, Follower(folder).story(up_to=start), folder)


def _screen(console: Console, story: Story, folder: RunFolder | None = None) -> Dashboard | PlainLines:
    return Dashboard(console, story, folder) if _is_screen(console) else PlainLines(console, story)


def _is_screen(console: Console) -> bool:
    """Can frames be drawn over one another? Colors may be forced where they cannot."""
    return console.is_interactive and not console.quiet and console.file.isatty()


def watch(
    run: str | Path, *, once: bool = False, silent: float = SILENT, console: Console | None = None
) -> None:
    """Look at a run, from another terminal or machine, until it ends or Ctrl-C.

    Reads the run's folder, and only what was appended since the last look; the run itself does not notice.
    once: show how it is now, and leave. silent: seconds without news that are worth a word.
    """
    console = console or Patient()
    follower = Follower(RunFolder.open(run))
    story = follower.story()
    follower.listen(story, silent)
    if (once or story.state != "running") and _is_screen(console):
        console.print(Frame(story))
    elif once or story.state != "running":
        _last_lines(PlainLines(console, story))
    else:
        with _leaving_on_ctrl_c(), _screen(console, story) as shown:
            _follow(follower, shown, silent)


def _follow(follower: Follower, screen: Dashboard | PlainLines, silent: float) -> None:
    lines = screen if isinstance(screen, PlainLines) else None
    told = 0.0
    if lines is not None:
        lines.show()
    while screen.story.state == "running" and not screen.console.quiet:
        time.sleep(EVERY)
        follower.tell(screen)
        silence = follower.listen(screen.story, silent)
        if lines is not None and silence > 2 * told:  # ever more seldom
            lines.tell(screen.story.end())
        if silence > 2 * told or not silence:
            told = silence
    if lines is not None:
        _last_lines(lines)


def _last_lines(lines: PlainLines) -> None:
    story = lines.story
    lines.show()
    if story.state == "finished" and story.kind:
        for line in (story.verdict, *story.also):
            lines.tell(line)
    if story.silence or story.state != "running":
        lines.tell(f"{story.end()}, at step {story.now} of {story.total}")


@contextmanager
def _leaving_on_ctrl_c() -> Iterator[None]:
    """Ctrl-C is the way out: the last frame stays, and nothing has happened to the run."""
    here = threading.current_thread() is threading.main_thread()
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler) if here else None
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        if here:
            signal.signal(signal.SIGINT, earlier or signal.SIG_DFL)
