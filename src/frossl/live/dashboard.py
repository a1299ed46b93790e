"""A run in a terminal, twice a second."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from types import TracebackType
from typing import Any, NamedTuple, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from frossl.live.story import BAD, WAITING, WELL, Line, Points, Story
from frossl.live.words import clock, encodable, harmless, number
from frossl.runs import RunFolder

EVERY = 0.5
"""Seconds between two frames."""
PATIENCE = 2.0
"""Seconds that the end of a run waits for a terminal that takes nothing more."""
GOOD, ALARM, QUIET = "green", "bold red", "dim"
WIDE, NARROW, LOW = 76, 36, 4
"""Columns for two columns of numbers; columns and rows below which there is one line."""
LABEL, VALUE, DRAWN = 13, 8, 32
"""Columns of a name, a number, and what is drawn beside it."""
RECENT = 6
NOT_TERMS = {"step", "epoch", "lr", "loss", "seconds", "images_per_second", "memory_gb", "effective_rank"}
MILLISECONDS = "ms_"


class Signs(NamedTuple):
    """What bars and curves are made of."""

    full: str
    empty: str
    levels: str
    cut: str


UNICODE = Signs("━", "╌", "▁▂▃▄▅▆▇█", "…")
ASCII = Signs("=", ".", "_.-~=+*#", "")


class Row(NamedTuple):
    """A line of a frame; where there is too little room, those with the largest number are left out."""

    when: int
    text: Text


class Frame:
    """All that is known of a run, in as many rows and columns as there are."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, console.size.height - 1
        signs = ASCII if options.ascii_only else UNICODE
        for text in self.rows(width, height, signs):
            if options.ascii_only:
                text.plain = encodable(text.plain, "ascii")
            text.truncate(width, overflow="ellipsis" if signs.cut else "crop")
            text.no_wrap, text.overflow = True, "ignore"
            text.rstrip()
            yield text

    def rows(self, width: int, height: int, signs: Signs) -> list[Text]:
        if width < NARROW or height < LOW:
            return [Text(self.story.line())]
        rows = [
            _BLANK,
            *self._head(width, signs),
            *self._verdict(width),
            *self._numbers(width, signs),
            *self._speed(width),
            *self._recent(),
        ]
        kept = sorted(range(len(rows)), key=lambda i: (rows[i].when, i))[:height]
        return [rows[i].text for i in sorted(kept)]

    def _head(self, width: int, signs: Signs) -> list[Row]:
        story = self.story
        title = _ends(Text(story.title, "bold"), Text(story.about, QUIET), width)
        if not story.total:
            return [*title, Row(0, Text(WAITING, QUIET))]
        share = min(1.0, story.now / story.total)
        words = [f"step {story.now:,} of {story.total:,}", f"{share:.0%}"]
        if story.state == "running" and (left := story.left()) is not None:
            words.append(f"{clock(left)} left")
        words.append(f"{clock(story.passed())} passed")
        if story.epochs and "epoch" in story.record:
            words.append(f"epoch {story.record['epoch'] + 1:,} of {story.epochs:,}")
        return [*title, Row(2, _bar(share, width, signs)), Row(0, Text(_fitting(words, width)))]

    def _verdict(self, width: int) -> list[Row]:
        story, rows = self.story, []
        if story.silence or story.state != "running":
            style = {"finished": GOOD, "stopped": "bold"}.get(story.state, ALARM)
            rows += _paragraph(Text(story.end(), style), width, 1)
        if story.kind:
            style = ALARM if story.kind in BAD else GOOD if story.kind in WELL else "bold"
            told = Text.assemble((story.kind, style), f"  {story.reason}" if story.reason else "")
            rows += _paragraph(told, width, 1)
        if story.advice:
            rows += _paragraph(Text(story.advice), width, 5)
        for sentence in story.also:
            rows += _paragraph(Text(sentence, QUIET), width, 5)
        return [_BLANK, *rows] if rows else []

    def _numbers(self, width: int, signs: Signs) -> list[Row]:
        story, record, looks = self.story, self.story.record, self.story.numbers
        wide = width >= WIDE
        room = min(DRAWN, (width // 2 if wide else width) - LABEL - VALUE - 6)
        left, right = [], []
        if "loss" in record:
            curve = _curve(story.losses, room, signs)
            left.append(Row(1, _cell("loss", number(record["loss"]), curve)))
        for name, value in record.items():
            if name not in NOT_TERMS and not name.startswith(MILLISECONDS):
                left.append(Row(6, _cell(f"  {harmless(name)}", number(value))))
        if story.rank is not None:
            share = story.rank / max(1, story.largest_rank)
            of = f"{story.rank:.0f}/{story.largest_rank}"
            right.append(Row(1, _cell("rank", of, _bar(share, room, signs))))
        if "features_rank" in looks:
            right.append(Row(7, _cell("  features", f"{looks['features_rank']:.0f}")))
        for when, name, title in (
            (4, "knn", "kNN"),
            (4, "probe", "probe"),
            (6, "probe_views", "probe, views"),
        ):
            if name in looks:
                share = looks[name] / 100
                right.append(Row(when, _cell(title, f"{looks[name]:.1f}%", _bar(share, room, signs))))
        rows = _beside(left, right, width // 2) if wide else [*left, *right]
        return [_BLANK, *rows] if rows else []

    def _speed(self, width: int) -> list[Row]:
        story, record = self.story, self.story.record
        words = []
        if "images_per_second" in record:
            words.append(f"{record['images_per_second']:,.0f} images/s")
        if (pace := story.seconds_per_step()) is not None:
            words.append(f"{1000 * pace:,.0f} ms a step" if pace < 10 else f"{pace:,.1f} s a step")
        if "memory_gb" in record:
            words.append(f"{record['memory_gb']:.1f} GB")
        if "lr" in record:
            words.append(f"rate {record['lr']:.2g}")
        if "share" in story.numbers and f"{MILLISECONDS}diagnostics" not in record:
            words.append(f"diagnostics {story.numbers['share']:.1%}")
        rows = [Row(5, Text(_fitting(words, width)))] if words else []
        spent = {name: value for name, value in record.items() if name.startswith(MILLISECONDS)}
        if all_of_it := sum(spent.values()):
            parts = [
                f"{harmless(name.removeprefix(MILLISECONDS))} {value / all_of_it:.0%}"
                for name, value in sorted(spent.items(), key=lambda item: -item[1])
            ]
            rows.append(Row(6, Text(_fitting(parts, width), QUIET)))
        return [_BLANK, *rows] if rows else []

    def _recent(self) -> list[Row]:
        lines = self.story.lines[-RECENT:]
        rows = [Row(10 + age, self.recent(line)) for age, line in enumerate(reversed(lines))]
        return [_BLANK, *reversed(rows)] if rows else []

    def recent(self, line: Line) -> Text:
        digits = len(f"{max(self.story.total, self.story.now):,}")
        return Text.assemble((f"step {line.step:>{digits},}  ", QUIET), line.text)


_BLANK = Row(9, Text())


def _fitting(words: Iterable[str], width: int) -> str:
    """As many as there is room for, the first ones."""
    line = ""
    for word in words:
        longer = f"{line}   {word}" if line else word
        if line and cell_len(longer) > width:
            break
        line = longer
    return line


def _ends(left: Text, right: Text, width: int) -> list[Row]:
    """One at each end of a line; where they do not fit, one below the other."""
    room = width - left.cell_len - right.cell_len
    return [Row(3, Text.assemble(left, " " * room, right))] if room >= 2 else [Row(3, left), Row(8, right)]


def _paragraph(text: Text, width: int, when: int) -> list[Row]:
    """At most two lines; the second may be left out where room is short."""
    if text.cell_len <= width:
        return [Row(when, text)]
    cut = text.plain.rfind(" ", 0, width)
    first, second = text.divide([cut]) if cut > 0 else (text, Text())
    second.plain = second.plain.lstrip()
    return [Row(when, first), *([Row(when + 5, second)] if second.plain else [])]


def _cell(name: str, value: str, drawn: Text | None = None) -> Text:
    label = Text(name, QUIET)
    label.truncate(LABEL, overflow="crop", pad=True)
    return Text.assemble(label, f" {value:>{VALUE}}  ", drawn or "")


def _beside(left: Sequence[Row], right: Sequence[Row], column: int) -> list[Row]:
    rows, nothing = [], Row(99, Text())
    for one, other in zip_longest(left, right, fillvalue=nothing):
        space = " " * max(0, column - one.text.cell_len)
        rows.append(Row(min(one.when, other.when), Text.assemble(one.text, space, other.text)))
    return rows


def _bar(share: float, width: int, signs: Signs) -> Text:
    full = round(max(0.0, min(1.0, share)) * width)
    return Text.assemble((signs.full * full, GOOD), (signs.empty * (width - full), QUIET))


def _curve(points: Points, width: int, signs: Signs) -> Text:
    """Means over equal shares of the steps, from the lowest sign to the highest."""
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
    halves = [mean / 2 for mean in means]  # the largest numbers are too far apart for a float
    low, span, steps = min(halves), max(halves) - min(halves), len(signs.levels) - 1
    heights = [round((half - low) / span * steps) if span > 0 else steps // 2 for half in halves]
    return Text("".join(signs.levels[height] for height in heights), GOOD)


class Dashboard:
    """A frame that renews itself. Whatever becomes of the terminal, the run neither fails nor waits for it.

    The run's own thread does no more than to replace a few values of the story; a second one draws them.
    """

    def __init__(self, console: Console, story: Story, folder: RunFolder | None = None) -> None:
        """folder: whose status tells how it ended."""
        self.console, self.story, self.folder = console, story, folder
        self._earlier = len(story.lines)
        self._size = console.size
        self._live = Live(
            console=console,
            auto_refresh=False,
            get_renderable=lambda: Frame(self.story),
            vertical_overflow="crop",
        )
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, name="frossl-live", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.folder is not None:
            with contextlib.suppress(Exception):  # how it ended is told elsewhere too
                self.story.status(self.folder.read_status())
        self._done.set()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():  # it waits for a terminal that has stopped taking anything
            self.console.quiet = True
            sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
            sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)

    def step(self, step: int, total: int, record: dict[str, Any] | None) -> None:
        self.story.step(step, total, record)

    def look(self, record: dict[str, Any]) -> None:
        self.story.look(record)

    def note(self, text: str) -> None:
        self.story.note(text)

    def tell(self, text: str) -> None:
        self.story.note(text, kept=True)

    def _draw_on(self) -> None:
        """All that touches the terminal."""
        try:
            self._live.start(refresh=True)
            while not self._done.wait(EVERY):
                self._draw()
            self._last()
        except Exception:  # the terminal is gone: the run goes on without
            self.console.quiet = True
        finally:
            with contextlib.suppress(Exception):
                self._live.stop()

    def _draw(self) -> None:
        if self.console.size != self._size:  # the terminal may have broken the old frame's lines
            self._size = self.console.size
            self.console.clear()
        self._live.refresh()

    def _last(self) -> None:
        """Lines that must not be overlooked, and for which the last frame has no room, are left above it."""
        frame = Frame(self.story)
        width, height = self.console.size
        rows = frame.rows(width, height - 1, UNICODE)
        shown = {text.plain for text in rows if text.cell_len <= width}
        for line in self.story.lines[self._earlier :]:
            if line.kept and (text := frame.recent(line).plain) not in shown:
                text = encodable(text, self.console.encoding)
                self.console.print(text, markup=False, highlight=False, soft_wrap=True)
