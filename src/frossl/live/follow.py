"""Follow a run from another process: the run folder is read, nothing is written."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic

from rich.console import Console

from frossl.errors import InputError
from frossl.live.dashboard import Dashboard, Frame
from frossl.live.progress import NonBlockingConsole, PlainLines
from frossl.live.run_view import Line, RunView
from frossl.runs import RunFolder, Status, outcome_of
from frossl.runs.json_lines import JsonLines, R

POLL_SECONDS = 0.5
"""Seconds between two reads of the folder."""
SILENCE_SECONDS = 30.0
SILENCE_RECORDS = 10
"""A run is reported as silent after this many seconds, or the usual time of this many records if longer."""
CHECKPOINT_NOTE = "checkpoint"
"""Text of the event that a checkpoint was written."""


class Tail(Generic[R]):
    """Incremental reader of records: each read returns those of the complete lines added since the last."""

    def __init__(self, lines: JsonLines[R]) -> None:
        self.lines, self.path, self.offset, self.changed = lines, lines.path, 0, 0.0
        self._file = 0

    @property
    def replaced(self) -> bool:
        """Whether the file was replaced or truncated since the last read, and must be read from the start."""
        try:
            seen = self.path.stat()
        except FileNotFoundError:
            return self.offset > 0
        return self._is_other(seen)

    def _is_other(self, seen: os.stat_result) -> bool:
        return self.offset > 0 and (seen.st_ino != self._file or seen.st_size < self.offset)

    def read(self) -> list[R]:
        """Return the new records; damaged lines are skipped."""
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
            whole, end, _ = file.read().rpartition(b"\n")  # the rest is a line that is still being written
        self.offset += len(whole) + len(end)
        return [record for line in whole.splitlines() if (record := self.lines.parse(line)) is not None]


class Follower:
    """Reader of a run folder that passes new records on to a display."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self._status = folder, folder.path / "status.json"
        self._begin()

    def _begin(self) -> None:
        self.metrics, self.diagnostics = Tail(self.folder.metrics), Tail(self.folder.diagnostics)
        self._seen: dict[Path, int] = {}

    def view(self, *, up_to: int | None = None) -> RunView:
        """Return the state from all records so far; with `up_to`, that of a run resumed from that step."""
        view = RunView.of(self.folder)
        if up_to is None:
            self._read_state(view)  # before the records: with the last status, all of them are written
        metrics, diagnostics = self.metrics.read(), self.diagnostics.read()
        for diagnostic in diagnostics:
            if up_to is None or diagnostic.step <= up_to:
                view.diagnostic(diagnostic)
        for record in metrics:
            if up_to is None or record.step <= up_to:
                view.step(record.step, view.total, record, fresh=False)
        view.conclude()
        if up_to is not None:
            view.begin(up_to)
        return view

    def update(self, display: Dashboard | PlainLines) -> None:
        """Pass everything new in the folder on to the display."""
        if not self.folder.path.is_dir():
            raise InputError(f"the run at {self.folder.path} is gone; there is nothing to watch")
        if self.metrics.replaced or self.diagnostics.replaced:  # it was resumed, or replaced by a new run
            self._begin()
            display.view = self.view()
        self._read_state(display.view)
        for diagnostic in self.diagnostics.read():
            display.diagnostic(diagnostic)
        for record in self.metrics.read():
            display.step(record.step, display.view.total, record)
        display.view.conclude()

    def _read_state(self, view: RunView) -> None:
        """Update the view from the status, the checkpoints and the list of bad files if they changed."""
        if self._changed(self._status) or not view.total:
            status = self.folder.read_status()
            if status.state == "finished":  # includes evaluations, also while the run is still closing
                status = Status({**status, "verdict": outcome_of(self.folder)})
            view.status(status)
        if self._changed(self.folder.checkpoints):
            steps = [_step(path) for path in self.folder.checkpoints.glob("step-*.pt")]
            for step in sorted(step for step in steps if Line(step, CHECKPOINT_NOTE) not in view.lines):
                view.note(CHECKPOINT_NOTE, step=step)
        if self._changed(self.folder.bad_files):
            count = self.folder.bad_files.read_bytes().count(b"\n")
            view.note(f"{count:,} files could not be read: {self.folder.bad_files.name}")

    def _changed(self, path: Path) -> bool:
        """Return whether a file or folder changed since the last call, by its modification time.

        Files are replaced as a whole, and a folder changes when files are added or removed.
        """
        try:
            now = path.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        before, self._seen[path] = self._seen.get(path), now
        return now != before

    def silence(self, view: RunView, silent: float) -> float:
        """Set and return the seconds since the last record if that is unusually long, else 0."""
        begun = self._seen.get(self._status) or self.folder.config_file.stat().st_mtime_ns
        pause, usual = time.time() - max(begun / 1e9, self.metrics.changed, self.diagnostics.changed), 0.0
        if len(view.times) > 1:
            usual = view.times[-1][1] - view.times[-2][1]
        late = view.state == "running" and pause > max(silent, SILENCE_RECORDS * usual)
        view.silence = pause if late else 0.0
        return view.silence


def _step(path: Path) -> int:
    digits = path.stem.removeprefix("step-")
    return int(digits) if digits.isdecimal() else 0


def screen(console: Console, folder: RunFolder, *, start: int = 0) -> Dashboard | PlainLines:
    """Return a dashboard in a terminal and plain lines elsewhere.

    Args:
        console: Console to show the run on.
        folder: Folder of the run.
        start: Step at which the run starts; 0, or the step of the checkpoint it is resumed from.
    """
    return _display(console, Follower(folder).view(up_to=start), folder)


def _display(console: Console, view: RunView, folder: RunFolder | None = None) -> Dashboard | PlainLines:
    return Dashboard(console, view, folder) if _is_terminal(console) else PlainLines(console, view)


def _is_terminal(console: Console) -> bool:
    """Return whether frames can be redrawn in place; a pipe with forced colors is no terminal."""
    return console.is_interactive and not console.quiet and console.file.isatty()


def watch(
    run: str | Path, *, once: bool = False, silent: float = SILENCE_SECONDS, console: Console | None = None
) -> None:
    """Show a run live, from another terminal or machine, until it ends or Ctrl-C is pressed.

    Reads the run folder, and only what was appended since the last read; the run is not affected.

    Args:
        run: Run folder.
        once: Show the current state and return.
        silent: Seconds without a new record after which the run is reported as silent.
        console: Console to show the run on; standard output if None.

    Raises:
        InputError: If there is no run at `run`, or it is deleted meanwhile.
    """
    console = console or NonBlockingConsole()
    follower = Follower(RunFolder.open(run))
    view = follower.view()
    follower.silence(view, silent)
    if (once or view.state != "running") and _is_terminal(console):
        console.print(Frame(view))
    elif once or view.state != "running":
        _last_lines(PlainLines(console, view))
    else:
        with _leaving_on_ctrl_c(), _display(console, view) as display:
            _follow(follower, display, silent)


def _follow(follower: Follower, display: Dashboard | PlainLines, silent: float) -> None:
    lines = display if isinstance(display, PlainLines) else None
    reported = 0.0
    if lines is not None:
        lines.show()
    while display.view.state == "running" and not display.console.quiet:
        time.sleep(POLL_SECONDS)
        follower.update(display)
        silence = follower.silence(display.view, silent)
        if lines is not None and silence > 2 * reported:  # less and less often, so that a log stays short
            lines.message(display.view.end())
        if silence > 2 * reported or not silence:
            reported = silence
    if lines is not None:
        _last_lines(lines)


def _last_lines(lines: PlainLines) -> None:
    view = lines.view
    lines.show()
    if view.state == "finished" and view.kind:
        for line in (view.verdict, *view.also):
            lines.message(line)
    if view.silence or view.state != "running":
        lines.message(f"{view.end()}, at step {view.now} of {view.total}")


@contextmanager
def _leaving_on_ctrl_c() -> Iterator[None]:
    """Leave the block on Ctrl-C without an error; the last frame stays, and the run is not affected."""
    is_main = threading.current_thread() is threading.main_thread()
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler) if is_main else None
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, earlier or signal.SIG_DFL)
