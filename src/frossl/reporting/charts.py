"""Charts as SVG: drawn here, colored by the page's style sheet, read out by its script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

from frossl.reporting.html import Markup, embedded_json, joined, tag, visible
from frossl.reporting.trajectory import Trajectory

T = TypeVar("T")

WIDTH, HEIGHT = 360, 216
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 34
POINTS = 200
"""Of a line, at most."""
ROWS = 24
"""Of the table of a line, at most."""
COLORS = 10
SHAPES = {
    "circle": "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0",
    "square": "m-2.9-2.9h5.8v5.8h-5.8z",
    "triangle": "m0-3.9l3.7 6.6h-7.4z",
    "diamond": "m0-4l3.6 4l-3.6 4l-3.6-4z",
    "cross": "m-3.4-1.2h2.2v-2.2h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2z",
}
"""Marks of about the same weight, as paths from their center."""


@dataclass(frozen=True)
class Mark:
    """Where and when a number was recorded."""

    step: int
    epoch: float | None = None
    minutes: float | None = None

    def __str__(self) -> str:
        if self.epoch is None:
            return f"step {self.step:,}"
        minutes = "" if self.minutes is None else f" · {number(round(self.minutes, 1))} min"
        return f"epoch {number(round(self.epoch, 2))}{minutes}"


@dataclass(frozen=True)
class Curve:
    name: str
    marks: tuple[Mark, ...]
    values: tuple[float, ...]
    look: str
    """Its classes in the style sheet: color and dashes."""

    @classmethod
    def of(cls, name: str, points: Iterable[tuple[Mark, object]], *, place: int = 0) -> Curve:
        """Of the points that are finite numbers, evenly chosen where there are many, the last among them.
        place: its number among the curves of a chart, which gives it its look."""
        kept = thinned([(mark, float(value)) for mark, value in points if is_number(value)], POINTS)
        look = f"{color(place)} dash{place % 4}"
        return cls(name, tuple(mark for mark, _ in kept), tuple(value for _, value in kept), look)


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def thinned(items: Sequence[T], most: int) -> list[T]:
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def number(value: float) -> str:
    """Three or four digits, as a person would write them."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        digits = 0 if abs(value) >= 1000 or value == int(value) else 1 if abs(value) >= 100 else 2
        digits = digits if abs(value) >= 1 or value == 0 else 2 - math.floor(math.log10(abs(value)))
        text = f"{value:,.{digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.2e}"
    return text.replace("-", "−")


@dataclass(frozen=True)
class Scale:
    """Numbers to a length of 1, by themselves or by their logarithm."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], *, log: bool = False, margin: float = 0.0) -> Scale:
        known = [value for value in values if not log or value > 0] or [1.0]
        low, high = min(known), max(known)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # level, but for rounding
            spare = 1.0 if log or low == 0 else abs(low) / 10
            low, high = (low / 2, high * 2) if log else (low - spare, high + spare)
        spare = margin * (high - low)
        return cls(low, high, log=True) if log else cls(low - spare, high + spare)

    def place(self, value: float) -> float:
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return min(1.0, share)

    def ticks(self, about: int = 5) -> list[float]:
        if self.log:
            return self._decades()
        rough = (self.high - self.low) / about
        power = 10 ** math.floor(math.log10(rough))
        step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first + 1
        return [round((first + i) * step, 12) for i in range(count)]

    def _decades(self) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for times in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            found = [t * 10.0**p for p in powers for t in times if self.low <= t * 10.0**p <= self.high]
            if len(found) >= 3:
                break
        return found[:: -(-len(found) // 6)] if found else [self.low, self.high]


@dataclass(frozen=True)
class Frame:
    """Two scales on a piece of paper."""

    x: Scale
    y: Scale
    across: str
    """What the x axis counts."""

    def left(self, value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * self.x.place(value), 1)

    def top(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.place(value), 1)

    def axes(self) -> Markup:
        floor = HEIGHT - BOTTOM
        rows = [
            (
                tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=self.top(y), y2=self.top(y), class_="grid"),
                tag("text", number(y), x=LEFT - 7, y=self.top(y) + 4, text_anchor="end"),
            )
            for y in self.y.ticks()
        ]
        columns = [
            (
                tag("line", x1=self.left(x), x2=self.left(x), y1=floor, y2=floor + 4, class_="axis"),
                tag("text", number(x), x=self.left(x), y=floor + 16, text_anchor="middle"),
            )
            for x in self.x.ticks()
            if self.left(x) < WIDTH - 40
        ]
        base = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=floor, y2=floor, class_="axis")
        name = tag("text", self.across, x=WIDTH - RIGHT, y=floor + 16, text_anchor="end", class_="name")
        return tag("g", rows, base, columns, name, aria_hidden="true")


Across = Mapping[str, Callable[[Mark], float | None]]
"""What an x axis may count, and how it is read off a mark."""
TIME: Across = {"epochs": lambda mark: mark.epoch, "minutes": lambda mark: mark.minutes}


def line_chart(title: str, curves: Sequence[Curve], *, long: bool = False) -> Markup | None:
    """Curves over epochs, and over minutes. long: a table of rows, as the curves have no points in common."""
    curves = [curve for curve in curves if curve.values]
    if not curves:
        return None
    y = Scale.over([value for curve in curves for value in curve.values], margin=0.05)
    frames: dict[str, Frame] = {}
    for across, read in TIME.items():
        seen = [x for curve in curves for mark in curve.marks if (x := read(mark)) is not None]
        if seen:
            frames[across] = Frame(Scale.over([0.0, *seen]), y, across)
    drawn = [
        _svg(title, curves, frame, TIME[across], class_=f"plot by-{across}")
        for across, frame in frames.items()
    ]
    if "minutes" not in frames:
        drawn.append(tag("p", "No times were recorded for these numbers.", class_="by-minutes quiet"))
    table = _long_table(title, curves) if long else _wide_table(title, curves)
    return _figure(title, curves, drawn, _read_out(curves, frames, TIME), table)


def _svg(
    title: str, curves: Sequence[Curve], frame: Frame, read: Callable[[Mark], float | None], **attributes: str
) -> Markup:
    lines = []
    for curve in curves:
        points = [
            f"{frame.left(x)} {frame.top(value)}"
            for mark, value in zip(curve.marks, curve.values, strict=True)
            if (x := read(mark)) is not None
        ]
        if not points:
            continue
        path = "M" + "L".join(points) + ("h0" if len(points) == 1 else "")
        lines.append(tag("path", d=path, class_=f"line {curve.look}"))
    return _drawing(
        joined(frame.axes(), lines), f"{title} over {frame.across}: {_summary(curves)}", **attributes
    )


def _drawing(content: Markup, label: str, **attributes: str) -> Markup:
    return tag("svg", content, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, **attributes)


def _summary(curves: Sequence[Curve]) -> str:
    return "; ".join(
        f"{curve.name} from {number(curve.values[0])} to {number(curve.values[-1])}" for curve in curves
    )


def color(i: int) -> str:
    """The class that colors number i."""
    return f"c{i % COLORS}"


def _figure(
    title: str, curves: Sequence[Curve], drawn: Iterable[Markup], data: Markup, table: Markup, note: str = ""
) -> Markup:
    """A chart, its key with the values under the cursor, and its numbers."""
    keys = [
        tag("li", _swatch(curve), tag("span", curve.name), " ", tag("b", number(curve.values[-1])))
        for curve in curves
    ]
    return tag(
        "figure",
        tag(
            "figcaption", title, tag("span", str(max((c.marks[-1] for c in curves), key=_step)), class_="at")
        ),
        tag("ul", keys, class_="key"),
        drawn,
        data,
        tag("p", note, class_="quiet") if note else None,
        tag("details", tag("summary", "Numbers", tag("span", f" of {title}", class_="unseen")), table),
        class_="chart",
    )


def _step(mark: Mark) -> int:
    return mark.step


def _swatch(curve: Curve) -> Markup:
    """Its line, for a key."""
    line = tag("path", d="M1 5h20", class_=f"line {curve.look}")
    return tag("svg", line, viewBox="0 0 22 10", width=22, height=10, aria_hidden="true")


def _read_out(curves: Sequence[Curve], frames: Mapping[str, Frame], across: Across) -> Markup:
    """What the script needs to tell the values at a place: points in the chart's own units, and words."""
    top = next(iter(frames.values())).top

    def left(name: str, mark: Mark) -> float | None:
        x = across[name](mark)
        return None if x is None else frames[name].left(x)

    return embedded_json(
        [
            {
                "name": visible(curve.name),
                "x": {name: [left(name, mark) for mark in curve.marks] for name in frames},
                "y": [top(value) for value in curve.values],
                "at": [str(mark) for mark in curve.marks],
                "text": [number(value) for value in curve.values],
                "look": curve.look,
            }
            for curve in curves
        ]
    )


def _wide_table(title: str, curves: Sequence[Curve]) -> Markup:
    """A row for each mark, a column for each curve."""
    columns = [dict(zip(curve.marks, curve.values, strict=True)) for curve in curves]
    marks = sorted({mark for column in columns for mark in column}, key=_step)
    rows = [
        (mark, [number(column[mark]) if mark in column else "" for column in columns])
        for mark in thinned(marks, ROWS)
    ]
    names = ["step", "epoch", "minute", *(curve.name for curve in curves)]
    return table(title, names, [[*_cells(mark), *values] for mark, values in rows])


def _long_table(title: str, curves: Sequence[Curve]) -> Markup:
    rows = [
        [curve.name, *_cells(mark), number(value)]
        for curve in curves
        for mark, value in thinned(list(zip(curve.marks, curve.values, strict=True)), ROWS // 2)
    ]
    return table(title, ["run", "step", "epoch", "minute", "value"], rows)


def _cells(mark: Mark) -> list[str]:
    times = ("" if time is None else number(time) for time in (mark.epoch, mark.minutes))
    return [f"{mark.step:,}", *times]


def table(caption: str, names: Sequence[str], rows: Iterable[Sequence[str | Markup]]) -> Markup:
    """Scrolls by itself where it is too wide, by keyboard too."""
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    body = [tag("tr", tag("th", row[0], scope="row"), [tag("td", cell) for cell in row[1:]]) for row in rows]
    inner = tag("table", tag("caption", caption, class_="unseen"), tag("thead", head), tag("tbody", body))
    return tag("div", inner, class_="wide", tabindex="0", role="region", aria_label=f"Table: {caption}")


def spectrum_chart(title: str, one: Trajectory) -> Markup:
    """The largest eigenvalues over the steps, both axes logarithmic, saturation marked, as in the paper."""
    count = len(one.eigenvalues[0])
    chosen = thinned(list(zip(one.steps, one.eigenvalues, strict=True)), POINTS)
    positive = [value for _, values in chosen for value in values if value > 0]
    floor = max(min(positive, default=1.0), max(positive, default=1.0) * 1e-7)
    frame = Frame(
        Scale.over([step for step, _ in chosen], log=True),
        Scale.over([value for value in positive if value >= floor], log=True),
        "steps",
    )
    lines = []
    for i in range(count):
        points = [f"{frame.left(step)} {frame.top(values[i])}" for step, values in chosen]
        share = round(100 * i / max(1, count - 1))
        lines.append(tag("path", d="M" + "L".join(points), class_="line ramp", style=f"--share:{share}%"))
    last = f"λ{str(count).translate(str.maketrans('0123456789', '₀₁₂₃₄₅₆₇₈₉'))}"
    told = f"λ₁ / {last} = {number(one.condition)} at the end; "
    told += "not saturated" if one.saturation is None else f"saturates at step {one.saturation:,}"
    drawn = _drawing(
        joined(frame.axes(), lines, _saturation(frame, one.saturation)),
        f"{title}, {count} eigenvalues over steps: {told}",
        class_="plot by-steps",
    )
    marks = tuple(Mark(step) for step, _ in chosen)
    ends = [
        Curve(name, marks, tuple(values[i] for _, values in chosen), look)
        for i, name, look in ((0, "λ₁", "near"), (count - 1, last, "far"))
    ]
    shown = sorted({0, count // 4, count // 2, count - 1})
    rows = [[f"{step:,}", *(number(values[i]) for i in shown)] for step, values in thinned(chosen, ROWS)]
    numbers = table(title, ["step", *(f"eigenvalue {i + 1}" for i in shown)], rows)
    data = _read_out(ends, {"steps": frame}, {"steps": lambda mark: mark.step})
    return _figure(title, ends, [drawn], data, numbers, told)


def _saturation(frame: Frame, step: int | None) -> Markup | None:
    if step is None:
        return None
    x = frame.left(step)
    late = x > WIDTH / 2
    return tag(
        "g",
        tag("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="mark"),
        tag(
            "text",
            "saturation",
            x=x - 5 if late else x + 5,
            y=TOP + 10,
            text_anchor="end" if late else "start",
        ),
        aria_hidden="true",
    )


def stacked_bar(title: str, parts: Sequence[tuple[str, float]], unit: str) -> Markup:
    """Shares of a whole, side by side, with their table."""
    total = sum(value for _, value in parts) or 1.0
    bar = [
        tag("span", class_=color(i), style=f"flex-grow:{value / total:.4f}")
        for i, (_, value) in enumerate(parts)
    ]
    told = ", ".join(f"{name} {number(value)}" for name, value in parts)
    rows = [
        [joined(tag("i", class_=f"chip {color(i)}"), name), number(value), f"{100 * value / total:.0f}%"]
        for i, (name, value) in enumerate(parts)
    ]
    return joined(
        tag("div", bar, class_="bar", role="img", aria_label=f"{title} in {unit}: {told}"),
        table(title, ["part", unit, "share"], rows),
    )


def shape_of(i: int) -> str:
    """The path of number i: no two of fifty have both color and shape in common, and neighbours in the row
    of colors differ by shape."""
    names = list(SHAPES)
    return SHAPES[names[(i + i // COLORS) % len(names)]]
