"""SVG charts of the report: colors come from its style sheet, values under the cursor from its script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from frossl.reporting.html import Markup, embedded_json, joined, tag, visible
from frossl.reporting.trajectory import Trajectory
from frossl.runs.records import is_number

T = TypeVar("T")

WIDTH, HEIGHT = 360, 216
"""Size of a chart in SVG units."""
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 34
"""Margins around the plot area."""
MAX_POINTS = 200
"""Largest number of points of a line."""
MAX_ROWS = 24
"""Largest number of rows of the table below a chart."""
COLORS = 10
"""Number of colors in the style sheet."""
SHAPES = {
    "circle": "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0",
    "square": "m-2.9-2.9h5.8v5.8h-5.8z",
    "triangle": "m0-3.9l3.7 6.6h-7.4z",
    "diamond": "m0-4l3.6 4l-3.6 4l-3.6-4z",
    "cross": "m-3.4-1.2h2.2v-2.2h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2z",
}
"""SVG paths of markers of about the same visual weight, relative to their center."""


@dataclass(frozen=True)
class Mark:
    """Step, epoch and time at which a number was recorded."""

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
    """Line of a chart."""

    name: str
    marks: tuple[Mark, ...]
    values: tuple[float, ...]
    css_class: str
    """Classes in the style sheet: color and dashes."""

    @classmethod
    def of(cls, name: str, points: Iterable[tuple[Mark, object]], *, place: int = 0) -> Curve:
        """Return the curve of the points that are finite numbers, thinned out evenly if there are too many.

        Args:
            name: Name in the legend.
            points: Pairs of a mark and a value; values that are no finite number are left out.
            place: Index among the curves of a chart, which selects the color and dashes.
        """
        finite = [(mark, float(value)) for mark, value in points if is_number(value)]
        chosen = thinned(finite, MAX_POINTS)
        css_class = f"{color(place)} dash{place % 4}"
        return cls(name, tuple(mark for mark, _ in chosen), tuple(value for _, value in chosen), css_class)


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` items, evenly spaced, the first and the last included."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def number(value: float) -> str:
    """Format a number with three or four significant digits and thousands separators."""
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
    """Linear or logarithmic map from an interval to [0, 1]."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], *, log: bool = False, margin: float = 0.0) -> Scale:
        """Return the scale from the smallest to the largest value.

        Args:
            values: Numbers to cover; a logarithmic scale ignores those that are not positive.
            log: Whether the scale is logarithmic.
            margin: Share of the range to add at each end of a linear scale.
        """
        known = [value for value in values if not log or value > 0] or [1.0]
        low, high = min(known), max(known)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # constant up to rounding
            spare = 1.0 if log or low == 0 else abs(low) / 10
            low, high = (low / 2, high * 2) if log else (low - spare, high + spare)
        spare = margin * (high - low)
        return cls(low, high, log=True) if log else cls(low - spare, high + spare)

    def place(self, value: float) -> float:
        """Return the position of a value on the scale; a logarithmic scale clips it to [0, 1]."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return min(1.0, share)

    def ticks(self, about: int = 5) -> list[float]:
        """Return about `about` round numbers of the scale."""
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
    """Plot area of a chart with its two scales."""

    x: Scale
    y: Scale
    across: str
    """Unit of the x axis."""

    def left(self, value: float) -> float:
        """Return the x coordinate of a value."""
        return round(LEFT + (WIDTH - LEFT - RIGHT) * self.x.place(value), 1)

    def top(self, value: float) -> float:
        """Return the y coordinate of a value."""
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.place(value), 1)

    def axes(self) -> Markup:
        """Draw the axes, ticks and grid lines."""
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
"""Units of the x axis, each with the function that reads it from a mark."""
TIME: Across = {"epochs": lambda mark: mark.epoch, "minutes": lambda mark: mark.minutes}


def line_chart(title: str, curves: Sequence[Curve], *, long: bool = False) -> Markup | None:
    """Draw curves over epochs and over minutes.

    Args:
        title: Title of the chart.
        curves: Lines of the chart; those without points are left out.
        long: Whether the table has one row for each point of each curve, for curves without common points.

    Returns:
        The figure, or None if no curve has points.
    """
    curves = [curve for curve in curves if curve.values]
    if not curves:
        return None
    y = Scale.over([value for curve in curves for value in curve.values], margin=0.05)
    frames: dict[str, Frame] = {}
    for across, read in TIME.items():
        known = [x for curve in curves for mark in curve.marks if (x := read(mark)) is not None]
        if known:
            frames[across] = Frame(Scale.over([0.0, *known]), y, across)
    drawn = [
        _svg(title, curves, frame, TIME[across], class_=f"plot by-{across}")
        for across, frame in frames.items()
    ]
    if "minutes" not in frames:
        drawn.append(tag("p", "No times were recorded for these values.", class_="by-minutes quiet"))
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
        lines.append(tag("path", d=path, class_=f"line {curve.css_class}"))
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
    """Return the CSS class of color i."""
    return f"c{i % COLORS}"


def _figure(
    title: str, curves: Sequence[Curve], drawn: Iterable[Markup], data: Markup, table: Markup, note: str = ""
) -> Markup:
    """Assemble a chart, its legend with the values under the cursor, and the table of its values."""
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
    """Draw the line sample of a curve for the legend."""
    line = tag("path", d="M1 5h20", class_=f"line {curve.css_class}")
    return tag("svg", line, viewBox="0 0 22 10", width=22, height=10, aria_hidden="true")


def _read_out(curves: Sequence[Curve], frames: Mapping[str, Frame], across: Across) -> Markup:
    """Embed the data that the script needs to show values under the cursor: SVG coordinates and texts."""
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
                "css_class": curve.css_class,
            }
            for curve in curves
        ]
    )


def _wide_table(title: str, curves: Sequence[Curve]) -> Markup:
    """Return a table with a row for each mark and a column for each curve."""
    columns = [dict(zip(curve.marks, curve.values, strict=True)) for curve in curves]
    marks = sorted({mark for column in columns for mark in column}, key=_step)
    rows = [
        (mark, [number(column[mark]) if mark in column else "" for column in columns])
        for mark in thinned(marks, MAX_ROWS)
    ]
    names = ["step", "epoch", "minute", *(curve.name for curve in curves)]
    return table(title, names, [[*_cells(mark), *values] for mark, values in rows])


def _long_table(title: str, curves: Sequence[Curve]) -> Markup:
    """Return a table with a row for each point of each curve."""
    rows = [
        [curve.name, *_cells(mark), number(value)]
        for curve in curves
        for mark, value in thinned(list(zip(curve.marks, curve.values, strict=True)), MAX_ROWS // 2)
    ]
    return table(title, ["run", "step", "epoch", "minute", "value"], rows)


def _cells(mark: Mark) -> list[str]:
    times = ("" if time is None else number(time) for time in (mark.epoch, mark.minutes))
    return [f"{mark.step:,}", *times]


def table(caption: str, names: Sequence[str], rows: Iterable[Sequence[str | Markup]]) -> Markup:
    """Return a table that scrolls horizontally if it is too wide, by keyboard as well.

    Args:
        caption: Title for screen readers.
        names: Column headings.
        rows: Cells; the first one of each row is its heading.
    """
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    body = [tag("tr", tag("th", row[0], scope="row"), [tag("td", cell) for cell in row[1:]]) for row in rows]
    inner = tag("table", tag("caption", caption, class_="unseen"), tag("thead", head), tag("tbody", body))
    return tag("div", inner, class_="wide", tabindex="0", role="region", aria_label=f"Table: {caption}")


def spectrum_chart(title: str, one: Trajectory) -> Markup:
    """Draw the largest eigenvalues over the steps on logarithmic axes, saturation marked, as in the paper."""
    count = len(one.eigenvalues[0])
    chosen = thinned(list(zip(one.steps, one.eigenvalues, strict=True)), MAX_POINTS)
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
    note = f"λ₁ / {last} = {number(one.condition)} at the end; "
    note += "not saturated" if one.saturation is None else f"saturates at step {one.saturation:,}"
    drawn = _drawing(
        joined(frame.axes(), lines, _saturation(frame, one.saturation)),
        f"{title}, {count} eigenvalues over steps: {note}",
        class_="plot by-steps",
    )
    marks = tuple(Mark(step) for step, _ in chosen)
    ends = [
        Curve(name, marks, tuple(values[i] for _, values in chosen), css_class)
        for i, name, css_class in ((0, "λ₁", "near"), (count - 1, last, "far"))
    ]
    shown = sorted({0, count // 4, count // 2, count - 1})
    rows = [[f"{step:,}", *(number(values[i]) for i in shown)] for step, values in thinned(chosen, MAX_ROWS)]
    numbers = table(title, ["step", *(f"eigenvalue {i + 1}" for i in shown)], rows)
    data = _read_out(ends, {"steps": frame}, {"steps": lambda mark: mark.step})
    return _figure(title, ends, [drawn], data, numbers, note)


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
    """Draw the parts of a whole as one horizontal bar, with a table.

    Args:
        title: Title of the table.
        parts: Pairs of a name and a value.
        unit: Unit of the values.
    """
    total = sum(value for _, value in parts) or 1.0
    bar = [
        tag("span", class_=color(i), style=f"flex-grow:{value / total:.4f}")
        for i, (_, value) in enumerate(parts)
    ]
    label = ", ".join(f"{name} {number(value)}" for name, value in parts)
    rows = [
        [joined(tag("i", class_=f"chip {color(i)}"), name), number(value), f"{100 * value / total:.0f}%"]
        for i, (name, value) in enumerate(parts)
    ]
    return joined(
        tag("div", bar, class_="bar", role="img", aria_label=f"{title} in {unit}: {label}"),
        table(title, ["part", unit, "share"], rows),
    )


def shape_of(i: int) -> str:
    """Return the SVG path of marker i.

    No two of the first fifty markers have the same color and shape, and markers of neighbouring colors differ
    in shape.
    """
    names = list(SHAPES)
    return SHAPES[names[(i + i // COLORS) % len(names)]]
