"""HTML report of one run."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

from PIL import Image

from frossl.errors import InputError
from frossl.reporting.charts import line_chart, number, stacked_bar
from frossl.reporting.fragments import axis_choice, quiet, spectra, verdict
from frossl.reporting.gallery import map_of_images, neighbours, sheet_style
from frossl.reporting.html import Child, Markup, escaped, joined, tag
from frossl.reporting.page import Section, page
from frossl.reporting.run_data import RunData, ordered_rows
from frossl.reporting.sample import Sample, encoded
from frossl.runs import EvaluationRecord
from frossl.runs.outcome import headline_knn
from frossl.text import method_title

MAX_VIEWS_BYTES = 600_000
"""Size of views.png beyond which it is shrunk for the page."""
SHRUNK_VIEWS_WIDTH = 1000
"""Width in pixels that it is then shrunk to."""
ROW_NAMES = {
    "pixels": "raw pixels",
    "colors": "color statistics",
    "untrained": "untrained network",
    "trained": "trained network",
}
"""Titles of the rows of an evaluation."""


def run_page(run: RunData) -> Markup:
    """Return the report of a run."""
    sample, sheet, reason = _sample(run)
    sections = [
        Section("accuracy", "Accuracy", _accuracy(run)),
        Section("curves", "Curves", _curves(run)),
        Section("spectra", "Eigenvalues", _spectra(run)),
        Section("views", "What the network saw", _views(run), "Views"),
        Section(
            "neighbours", "Nearest neighbours", neighbours(sample) if sample else quiet(reason), "Neighbours"
        ),
        Section("map", "A map of the images", map_of_images(sample) if sample else quiet(reason), "Map"),
        Section("time", "Where the time went", _time(run), "Time"),
        Section("origin", "Where it came from", _origin(run), "Origin"),
    ]
    style = sheet_style(sample, sheet) if sample else ""
    version = _table(run.provenance, "versions").get("frossl")
    writer = f"frossl {version}" if version else "frossl"
    about = f"Report written by {writer}. The file is self-contained and loads nothing from the network."
    return page(f"{run.name} · frossl", _header(run), sections, style=style, about=about)


def _sample(run: RunData) -> tuple[Sample | None, bytes, str]:
    """Return the sample and its thumbnails; if there is none, the reason."""
    try:
        sample = Sample.read(run.folder.path / "sample.npz")
        return sample, sample.page_sheet(), ""
    except InputError as error:
        return None, b"", f"No images to show: {error}."


def _header(run: RunData) -> Markup:
    method = method_title(run.config.objective.method) if run.config else None
    source = run.config.data.source if run.config else None
    backbone = run.config.network.backbone if run.config else None
    subtitle = " · ".join(part for part in (method, backbone, source) if part)
    return joined(
        tag("p", subtitle, class_="over") if subtitle else None,
        tag("h1", run.name),
        tag("p", run.state, class_="state"),
        verdict(run),
        [tag("p", trouble, class_="trouble") for trouble in run.troubles],
        tag("dl", big_numbers(run), class_="figures"),
    )


def big_numbers(run: RunData) -> list[Markup]:
    """Return the headline figures: accuracy, rank, throughput, time and images."""
    found: list[tuple[str, str, str]] = []
    knn = headline_knn(record for record in run.protocols if "trained" in record.percent)
    if knn is not None:
        percent = knn.percent
        beside = [f"{row} {percent[row]:.1f}" for row in ("pixels", "untrained") if row in percent]
        found.append((knn.protocol, f"{percent['trained']:.1f}%", ", ".join(beside)))
    elif (online := run.newest("knn")) is not None:
        found.append(("online kNN", f"{online:.1f}%", "last value"))
    if (rank := run.newest("z_rank")) is not None:
        directions = run.newest("directions")
        found.append(("effective rank", number(round(rank, 1)), f"of {directions:.0f}" if directions else ""))
    if run.images_per_second is not None:
        found.append(("images per second", f"{run.images_per_second:,.0f}", "median"))
    if run.seconds:
        found.append(("minutes", number(round(run.seconds / 60, 1)), "of training"))
    if run.images is not None:
        bad = f"{run.bad_files:,} unreadable" if run.bad_files else ""
        found.append(("images", f"{run.images:,}", bad))
    return [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", note) if note else None))
        for name, value, note in found
    ]


def _accuracy(run: RunData) -> Markup:
    if not run.protocols:
        return quiet("Not measured yet. With labels, run `frossl knn RUN` or `frossl probe RUN`.")
    best = max(percent for record in run.protocols for percent in record.percent.values())
    top = min(100.0, 1.25 * best) or 1.0
    text = (
        "Accuracy in percent, with the 95% interval. Training has added what exceeds both raw pixels and the "
        "untrained network."
    )
    return joined(
        tag("p", text), tag("div", [_protocol(record, run, top) for record in run.protocols], class_="cards")
    )


def _protocol(record: EvaluationRecord, run: RunData, top: float) -> Markup:
    """Return the card of one evaluation; `top` is the upper end of the scale in percent."""
    rows = []
    for row in ordered_rows(record):
        percent, interval = record.percent[row], record.interval.get(row)
        low, high = interval or (percent, percent)
        rows.append(
            tag(
                "tr",
                tag("th", ROW_NAMES.get(row, row), scope="row"),
                tag("td", _whisker(percent, low, high, top), class_="whisker"),
                tag("td", f"{percent:.1f}", class_="percent"),
                tag("td", f"{low:.1f}–{high:.1f}" if interval else ""),
                class_="trained" if row == "trained" else None,
            )
        )
    titles = ("network", "on a scale", "percent", "95% interval")
    head = tag("tr", [tag("th", tag("span", title, class_="unseen"), scope="col") for title in titles])
    final = run.status is not None and record.step == run.status.step
    notes = [
        f"{record.images:,} test images" if record.images is not None else None,
        record.note,
        None if final else f"at step {record.step:,}",
    ]
    on = f", on {record.data}" if record.data else ""
    return tag(
        "div",
        tag(
            "table",
            tag("caption", f"{record.protocol}{on}"),
            tag("thead", head),
            tag("tbody", rows),
            class_="accuracy",
        ),
        quiet("; ".join(note for note in notes if note)),
    )


def _whisker(percent: float, low: float, high: float, top: float) -> Markup:
    """Draw a value and its interval on a scale from 0 to `top`."""
    left, right, point = (100 * min(1.0, max(0.0, value / top)) for value in (low, high, percent))
    interval = tag("i", class_="span", style=f"left:{left:.1f}%;width:{right - left:.1f}%")
    return tag("div", interval, tag("i", class_="dot", style=f"left:{point:.1f}%"), aria_hidden="true")


def _curves(run: RunData) -> Markup:
    parts = [run.curve(part, part.replace("_", " "), place=1 + i) for i, part in enumerate(run.parts)]
    ranks = [
        run.curve(key, name, diagnostics=True, place=i)
        for i, (key, name) in enumerate(
            {
                "z_rank": "projections",
                "z_rankme": "projections, RankMe",
                "features_rank": "features",
                "features_rankme": "features, RankMe",
            }.items()
        )
    ]
    if not any(curve.values for curve in ranks):
        ranks = [run.curve("effective_rank", "projections")]
    accuracy = [
        run.curve(key, name, diagnostics=True, place=i)
        for i, (key, name) in enumerate(
            {"knn": "kNN", "probe": "probe", "probe_views": "probe, training views"}.items()
        )
    ]
    charts = [
        line_chart("Loss and its parts" if parts else "Loss", [run.curve("loss", "loss"), *parts]),
        line_chart("Effective rank", ranks),
        line_chart("Online accuracy, percent", accuracy),
        line_chart("Learning rate", [run.curve("lr", "learning rate")]),
    ]
    if not any(charts):
        return quiet("No step was recorded.")
    return joined(axis_choice(), tag("div", charts, class_="charts"))


def _spectra(run: RunData) -> Markup:
    charts = spectra(run, [("z", "Projections"), ("features", "Features")])
    if not charts:
        return quiet("The run has not recorded the spectrum of its embeddings at least twice.")
    return joined(
        tag(
            "p",
            "The largest eigenvalues of the covariance over the steps. Lines that converge are directions "
            "that are used evenly; lines that fall are directions that are lost.",
        ),
        tag("div", charts, class_="charts"),
    )


def _views(run: RunData) -> Markup:
    path = run.folder.views
    if not path.is_file():
        return quiet("The run folder has no views.png.")
    try:
        data, kind = path.read_bytes(), "png"
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            image.load()
            width, height = image.size
            if len(data) > MAX_VIEWS_BYTES:
                image.thumbnail((SHRUNK_VIEWS_WIDTH, 20 * SHRUNK_VIEWS_WIDTH))
                (width, height), data, kind = image.size, encoded(image, 80), "jpeg"
    except (
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        return quiet(f"views.png cannot be read ({error}).")
    views = sum(spec.count for spec in run.config.views) if run.config else 0
    caption = "Images in the first column, with their views beside them"
    return tag(
        "figure",
        tag(
            "img",
            src=data_uri(data, kind),
            alt=f"{caption}{f', {views} of each' if views else ''}: random crops with changed colors",
            width=width,
            height=height,
            class_="views",
        ),
        tag("figcaption", f"{caption}. The network learns that the views of a row belong together."),
        class_="sheet",
    )


def data_uri(data: bytes, kind: str) -> str:
    """Return image bytes as a data URI; `kind` is png or jpeg."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _time(run: RunData) -> Markup:
    speed = line_chart("Images per second", [run.curve("images_per_second", "images per second")])
    parts: Child = quiet("The run has not recorded the times of the parts of its steps.")
    if run.milliseconds:
        total = sum(value for _, value in run.milliseconds)
        parts = joined(
            tag("p", f"A step took {number(total)} ms on average."),
            stacked_bar("Average step", run.milliseconds, "milliseconds"),
        )
    memory = f"Peak memory: {run.memory_gb:.2f} GB." if run.memory_gb else None
    left = tag("div", parts, tag("p", memory) if memory else None)
    return tag("div", left, speed, class_="charts")


def _table(provenance: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a table of the provenance; an empty one if it is missing or of another type."""
    found = provenance.get(key)
    return found if isinstance(found, dict) else {}


def _origin(run: RunData) -> Markup:
    known = run.provenance
    versions, hardware = _table(known, "versions"), _table(known, "hardware")
    facts: list[tuple[str, object]] = [
        ("Command", tag("code", str(known["command"])) if known.get("command") else None),
        ("Started", known.get("started")),
        ("Seed", known.get("seed")),
        ("Images", f"{run.images:,}" if run.images else None),
        ("Unreadable files", f"{run.bad_files:,}" + (", listed in bad_files.txt" if run.bad_files else "")),
        ("Index digest", tag("code", str(known["index_digest"])) if known.get("index_digest") else None),
        (
            "Weights digest",
            tag("code", str(known["weights_digest"])) if known.get("weights_digest") else None,
        ),
        (
            "Hardware",
            ", ".join(f"{value} cores" if key == "cores" else str(value) for key, value in hardware.items()),
        ),
        ("Job", known.get("job")),
        ("Versions", ", ".join(f"{name} {value}" for name, value in versions.items() if value)),
    ]
    rows = [
        tag("div", tag("dt", name), tag("dd", value if isinstance(value, Markup) else str(value)))
        for name, value in facts
        if value not in (None, "")
    ]
    toml = tag(
        "pre",
        tag("code", escaped(run.toml, keep="\n\t")),
        tabindex="0",
        role="region",
        aria_label="config.toml",
    )
    return joined(
        tag("dl", rows, class_="facts"),
        tag("h3", "Configuration"),
        tag("p", "The content of config.toml, which reproduces the run."),
        toml,
    )
