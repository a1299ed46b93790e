"""Dashboard of a run in a terminal, redrawn twice a second."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from types import TracebackType
from typing import NamedTuple, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from frossl.live.run_view import BAD, GOOD, WAITING, Line, Points, RunView
from frossl.runs import DiagnosticRecord, RunFolder, StepRecord
from frossl.text import clock, encodable, number, sanitize

REFRESH_SECONDS = 0.5
"""Seconds between two frames."""
CLOSE_TIMEOUT = 2.0
"""Seconds to wait, when a run ends, for a terminal that no longer accepts output."""
GOOD_STYLE = "green"
BAD_STYLE = "bold red"
DIM_STYLE = "dim"
TWO_COLUMN_WIDTH = 76
"""Terminal width from which numbers are shown in two columns."""
MIN_WIDTH = 36
MIN_HEIGHT = 4
"""Terminal size below which the frame is a single line."""
LABEL_WIDTH = 13
VALUE_WIDTH = 8
MAX_GRAPHIC_WIDTH = 32
"""Largest width of the bar or curve beside a number."""
RECENT_LINES = 6
"""Number of recent events at the end of a frame."""


class Symbols(NamedTuple):
    """Characters that bars and curves are drawn with."""

    full: str
    empty: str
    levels: str
    cut: str


UNICODE = Symbols("━", "╌", "▁▂▃▄▅▆▇█", "…")
ASCII = Symbols("=", ".", "_.-~=+*#", "")


class Row(NamedTuple):
    """Line of a frame. In a small terminal, lines with the largest `priority` number are left out first."""

    priority: int
    text: Text


class Frame:
    """Rich renderable of a `RunView`, fitted to the size of the terminal."""

    def __init__(self, view: RunView) -> None:
        self.view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, console.size.height - 1
        symbols = ASCII if options.ascii_only else UNICODE
        for text in self.rows(width, height, symbols):
            if options.ascii_only:
                text.plain = encodable(text.plain, "ascii")
            text.truncate(width, overflow="ellipsis" if symbols.cut else "crop")
            text.no_wrap, text.overflow = True, "ignore"
            text.rstrip()
            yield text

    def rows(self, width: int, height: int, symbols: Symbols) -> list[Text]:
        """Return the lines that fit into `width` columns and `height` rows."""
        if width < MIN_WIDTH or height < MIN_HEIGHT:
            return [Text(self.view.line())]
        rows = [
            _BLANK,
            *self._head(width, symbols),
            *self._verdict(width),
            *self._numbers(width, symbols),
            *self._speed(width),
            *self._recent(),
        ]
        chosen = sorted(range(len(rows)), key=lambda i: (rows[i].priority, i))[:height]
        return [rows[i].text for i in sorted(chosen)]

    def _head(self, width: int, symbols: Symbols) -> list[Row]:
        view = self.view
        title = _ends(Text(view.title, "bold"), Text(view.about, DIM_STYLE), width)
        if not view.total:
            return [*title, Row(0, Text(WAITING, DIM_STYLE))]
        share = min(1.0, view.now / view.total)
        words = [f"step {view.now:,} of {view.total:,}", f"{share:.0%}"]
        if view.state == "running" and (remaining := view.remaining()) is not None:
            words.append(f"{clock(remaining)} left")
        words.append(f"{clock(view.elapsed())} elapsed")
        if view.record is not None and (epoch := view.record.number("epoch")) is not None:
            words.append(f"epoch {epoch + 1:,}" + (f" of {view.epochs:,}" if view.epochs else ""))
        return [*title, Row(2, _bar(share, width, symbols)), Row(0, Text(_fitting(words, width)))]

    def _verdict(self, width: int) -> list[Row]:
        view, rows = self.view, []
        if view.silence or view.state != "running":
            style = {"finished": GOOD_STYLE, "stopped": "bold"}.get(view.state, BAD_STYLE)
            rows += _paragraph(Text(view.end(), style), width, 1)
        if view.kind:
            style = BAD_STYLE if view.kind in BAD else GOOD_STYLE if view.kind in GOOD else "bold"
            verdict = Text.assemble((view.kind, style), f"  {view.reason}" if view.reason else "")
            rows += _paragraph(verdict, width, 1)
        if view.advice:
            rows += _paragraph(Text(view.advice), width, 5)
        for sentence in view.also:
            rows += _paragraph(Text(sentence, DIM_STYLE), width, 5)
        return [_BLANK, *rows] if rows else []

    def _numbers(self, width: int, symbols: Symbols) -> list[Row]:
        view, diagnostics = self.view, self.view.numbers
        terms = {} if view.record is None else view.record.terms
        wide = width >= TWO_COLUMN_WIDTH
        room = min(MAX_GRAPHIC_WIDTH, (width // 2 if wide else width) - LABEL_WIDTH - VALUE_WIDTH - 6)
        left, right = [], []
        if view.record is not None and "loss" in (numbers := view.record.numbers()):
            curve = _curve(view.losses, room, symbols)
            left.append(Row(1, _cell("loss", number(numbers["loss"]), curve)))
        for name, value in terms.items():
            if name != "effective_rank":  # shown as the rank
                left.append(Row(6, _cell(f"  {sanitize(name)}", number(value))))
        if view.rank is not None:
            share = view.rank / max(1, view.largest_rank)
            rank = f"{view.rank:.0f}/{view.largest_rank}"
            right.append(Row(1, _cell("rank", rank, _bar(share, room, symbols))))
        if "features_rank" in diagnostics:
            right.append(Row(7, _cell("  features", f"{diagnostics['features_rank']:.0f}")))
        for priority, name, title in (
            (4, "knn", "kNN"),
            (4, "probe", "probe"),
            (6, "probe_views", "probe, views"),
        ):
            if name in diagnostics:
                share = diagnostics[name] / 100
                bar = _bar(share, room, symbols)
                right.append(Row(priority, _cell(title, f"{diagnostics[name]:.1f}%", bar)))
        rows = _beside(left, right, width // 2) if wide else [*left, *right]
        return [_BLANK, *rows] if rows else []

    def _speed(self, width: int) -> list[Row]:
        view, record = self.view, self.view.record or StepRecord()
        words = []
        if record.images_per_second is not None:
            words.append(f"{record.images_per_second:,.0f} images/s")
        if (seconds := view.seconds_per_step()) is not None:
            words.append(f"{1000 * seconds:,.0f} ms/step" if seconds < 10 else f"{seconds:,.1f} s/step")
        if record.memory_gb is not None:
            words.append(f"{record.memory_gb:.1f} GB")
        if (rate := record.number("lr")) is not None:
            words.append(f"lr {rate:.2g}")
        spent = record.milliseconds
        if "share" in view.numbers and "diagnostics" not in spent:
            words.append(f"diagnostics {view.numbers['share']:.1%}")
        rows = [Row(5, Text(_fitting(words, width)))] if words else []
        if total := sum(spent.values()):
            parts = [
                f"{sanitize(name)} {value / total:.0%}"
                for name, value in sorted(spent.items(), key=lambda item: -item[1])
            ]
            rows.append(Row(6, Text(_fitting(parts, width), DIM_STYLE)))
        return [_BLANK, *rows] if rows else []

    def _recent(self) -> list[Row]:
        lines = self.view.lines[-RECENT_LINES:]
        rows = [Row(10 + age, self.recent(line)) for age, line in enumerate(reversed(lines))]
        return [_BLANK, *reversed(rows)] if rows else []

    def recent(self, line: Line) -> Text:
        """Return one event with its step."""
        digits = len(f"{max(self.view.total, self.view.now):,}")
        return Text.assemble((f"step {line.step:>{digits},}  ", DIM_STYLE), line.text)


_BLANK = Row(9, Text())


def _fitting(words: Iterable[str], width: int) -> str:
    """Join as many of the first words as fit into `width` columns."""
    line = ""
    for word in words:
        longer = f"{line}   {word}" if line else word
        if line and cell_len(longer) > width:
            break
        line = longer
    return line


def _ends(left: Text, right: Text, width: int) -> list[Row]:
    """Put one text at each end of a line, or one below the other if they do not fit."""
    room = width - left.cell_len - right.cell_len
    return [Row(3, Text.assemble(left, " " * room, right))] if room >= 2 else [Row(3, left), Row(8, right)]


def _paragraph(text: Text, width: int, priority: int) -> list[Row]:
    """Wrap a text to at most two lines; the second is left out earlier than the first."""
    if text.cell_len <= width:
        return [Row(priority, text)]
    cut = text.plain.rfind(" ", 0, width)
    first, second = text.divide([cut]) if cut > 0 else (text, Text())
    second.plain = second.plain.lstrip()
    return [Row(priority, first), *([Row(priority + 5, second)] if second.plain else [])]


def _cell(name: str, value: str, graphic: Text | None = None) -> Text:
    label = Text(name, DIM_STYLE)
    label.truncate(LABEL_WIDTH, overflow="crop", pad=True)
    return Text.assemble(label, f" {value:>{VALUE_WIDTH}}  ", graphic or "")


def _beside(left: Sequence[Row], right: Sequence[Row], column: int) -> list[Row]:
    rows, empty = [], Row(99, Text())
    for one, other in zip_longest(left, right, fillvalue=empty):
        space = " " * max(0, column - one.text.cell_len)
        rows.append(Row(min(one.priority, other.priority), Text.assemble(one.text, space, other.text)))
    return rows


def _bar(share: float, width: int, symbols: Symbols) -> Text:
    full = round(max(0.0, min(1.0, share)) * width)
    return Text.assemble((symbols.full * full, GOOD_STYLE), (symbols.empty * (width - full), DIM_STYLE))


def _curve(points: Points, width: int, symbols: Symbols) -> Text:
    """Draw a sparkline: the mean of the values in each of `width` equal ranges of steps."""
    if len(points) < 2:
        return Text()
    first, last = points[0][0], points[-1][0]
    width = min(width, len(points))
    bins: list[list[float]] = [[] for _ in range(width)]
    for step, value in points:
        bins[min(width - 1, int((step - first) / max(last - first, 1) * width))].append(value)
    means: list[float] = []
    for values in bins:
        means.append(sum(value / len(values) for value in values) if values else means[-1])
    halves = [mean / 2 for mean in means]  # the difference of two large floats may overflow
    low, span, steps = min(halves), max(halves) - min(halves), len(symbols.levels) - 1
    heights = [round((half - low) / span * steps) if span > 0 else steps // 2 for half in halves]
    return Text("".join(symbols.levels[height] for height in heights), GOOD_STYLE)


class Dashboard:
    """Live display of a run; a terminal that is closed or blocked neither fails the run nor slows it.

    The thread of the run only replaces a few values of the view; a second thread draws them.
    """

    def __init__(self, console: Console, view: RunView, folder: RunFolder | None = None) -> None:
        """Prepare a dashboard; entering its context starts the drawing.

        Args:
            console: Console of the terminal to draw to.
            view: State of the run to show.
            folder: Folder of the run; its status at the end is shown in the last frame.
        """
        self.console, self.view, self.folder = console, view, folder
        self._lines_before = len(view.lines)
        self._size = console.size
        self._live = Live(
            console=console,
            auto_refresh=False,
            get_renderable=lambda: Frame(self.view),
            vertical_overflow="crop",
        )
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frossl-live", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.folder is not None:
            with contextlib.suppress(Exception):  # the command prints how the run ended as well
                self.view.status(self.folder.read_status())
        self._done.set()
        self._thread.join(CLOSE_TIMEOUT)
        if self._thread.is_alive():  # blocked by a terminal that accepts no more output
            self.console.quiet = True
            sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
            sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)

    def step(self, step: int, total: int, record: StepRecord | None) -> None:
        self.view.step(step, total, record)

    def diagnostic(self, record: DiagnosticRecord) -> None:
        self.view.diagnostic(record)

    def note(self, text: str) -> None:
        self.view.note(text)

    def message(self, text: str) -> None:
        self.view.note(text, important=True)

    def _run(self) -> None:
        """Draw until the run ends; nothing outside this thread writes to the terminal."""
        try:
            self._live.start(refresh=True)
            while not self._done.wait(REFRESH_SECONDS):
                self._draw()
            self._draw_last()
        except Exception:  # the terminal was closed: continue without a display
            self.console.quiet = True
        finally:
            with contextlib.suppress(Exception):
                self._live.stop()

    def _draw(self) -> None:
        if self.console.size != self._size:  # the terminal may have wrapped the lines of the old frame
            self._size = self.console.size
            self.console.clear()
        self._live.refresh()

    def _draw_last(self) -> None:
        """Print the important lines that do not fit into the last frame above it."""
        frame = Frame(self.view)
        width, height = self.console.size
        rows = frame.rows(width, height - 1, UNICODE)
        shown = {text.plain for text in rows if text.cell_len <= width}
        for line in self.view.lines[self._lines_before :]:
            if line.important and (text := frame.recent(line).plain) not in shown:
                text = encodable(text, self.console.encoding)
                self.console.print(text, markup=False, highlight=False, soft_wrap=True)
