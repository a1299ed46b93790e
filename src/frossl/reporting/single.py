"""The page of one run."""

from __future__ import annotations

import base64
import io

from PIL import Image

from frossl.errors import InputError
from frossl.reporting.charts import is_number, line_chart, number, stacked_bar
from frossl.reporting.facts import Facts, Record, ordered_rows
from frossl.reporting.gallery import map_of_images, neighbours, sheet_style
from frossl.reporting.html import Child, Markup, escaped, joined, tag
from frossl.reporting.page import Section, page
from frossl.reporting.pieces import axis_choice, quiet, spectra, verdict
from frossl.reporting.sample import Sample, encoded

VIEWS_BYTES, VIEWS_WIDTH = 600_000, 1000
"""A sheet of views that is larger is made smaller."""
ROW_NAMES = {
    "pixels": "raw pixels",
    "colors": "color statistics",
    "untrained": "untrained network",
    "trained": "trained network",
}


def run_page(run: Facts) -> Markup:
    sample, sheet, why = _sample(run)
    sections = [
        Section("accuracy", "Accuracy", _accuracy(run)),
        Section("curves", "Curves", _curves(run)),
        Section("spectra", "Eigenvalues", _spectra(run)),
        Section("views", "What the network saw", _views(run), "Views"),
        Section(
            "neighbours", "Nearest neighbours", neighbours(sample) if sample else quiet(why), "Neighbours"
        ),
        Section("map", "A map of the images", map_of_images(sample) if sample else quiet(why), "Map"),
        Section("time", "Where the time went", _time(run), "Time"),
        Section("origin", "Where it came from", _origin(run), "Origin"),
    ]
    style = sheet_style(sample, sheet) if sample else ""
    version = _table(run.provenance, "versions").get("frossl")
    maker = f"frossl {version}" if version else "frossl"
    about = f"A report by {maker}. Everything is in this file; it fetches nothing."
    return page(f"{run.name} · frossl", _header(run), sections, style=style, about=about)


def _sample(run: Facts) -> tuple[Sample | None, bytes, str]:
    """The sample and its thumbnails; or none, and why."""
    try:
        sample = Sample.read(run.folder.path / "sample.npz")
        return sample, sample.page_sheet(), ""
    except InputError as error:
        return None, b"", f"No images to show: {error}."


def _header(run: Facts) -> Markup:
    method = run.config.objective.method if run.config else None
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


def big_numbers(run: Facts) -> list[Markup]:
    found: list[tuple[str, str, str]] = []
    knn = [record for record in run.protocols if record["protocol"].startswith("kNN")]
    knn.sort(key=lambda record: record["protocol"].endswith("brief"))  # a whole measurement says more
    if knn and is_number(trained := knn[0]["percent"].get("trained")):
        beside = [
            f"{ROW_NAMES[row].split()[-1] if row == 'pixels' else 'untrained'} {value:.1f}"
            for row in ("pixels", "untrained")
            if is_number(value := knn[0]["percent"].get(row))
        ]
        found.append((knn[0]["protocol"], f"{trained:.1f}%", ", ".join(beside)))
    elif (online := run.newest("knn")) is not None:
        found.append(("kNN while training", f"{online:.1f}%", "the last look"))
    if (rank := run.newest("z_rank")) is not None:
        directions = run.newest("directions")
        found.append(("effective rank", number(round(rank, 1)), f"of {directions:.0f}" if directions else ""))
    if run.images_per_second is not None:
        found.append(("images a second", f"{run.images_per_second:,.0f}", "median"))
    if run.seconds:
        found.append(("minutes", number(round(run.seconds / 60, 1)), "of training"))
    if run.images is not None:
        bad = f"{run.bad_files:,} unreadable" if run.bad_files else ""
        found.append(("images", f"{run.images:,}", bad))
    return [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", note) if note else None))
        for name, value, note in found
    ]


def _accuracy(run: Facts) -> Markup:
    if not run.protocols:
        return quiet("Not measured yet. With labels, `frossl knn RUN` and `frossl probe RUN` do.")
    best = max(record["percent"][row] for record in run.protocols for row in ordered_rows(record))
    top = min(100.0, 1.25 * best) or 1.0
    told = (
        "Percent right, with the 95% interval. What training added is what lies beyond pixels and untrained."
    )
    return joined(
        tag("p", told), tag("div", [_protocol(record, run, top) for record in run.protocols], class_="cards")
    )


def _protocol(record: Record, run: Facts, top: float) -> Markup:
    """One accuracy by rows. top: where the scale of all of them ends."""
    rows = []
    for row in ordered_rows(record):
        percent, interval = record["percent"][row], _table(record, "interval").get(row)
        if not (isinstance(interval, list) and len(interval) == 2 and all(map(is_number, interval))):
            interval = None
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
    images, step = record.get("images"), record.get("step")
    notes = [
        f"{images:,} test images" if is_number(images) else None,
        str(record["note"]) if record.get("note") else None,
        f"at step {step:,}" if step != run.status.get("step") and is_number(step) else None,
    ]
    on = f", on {record['data']}" if record.get("data") else ""
    return tag(
        "div",
        tag(
            "table",
            tag("caption", f"{record['protocol']}{on}"),
            tag("thead", head),
            tag("tbody", rows),
            class_="accuracy",
        ),
        quiet("; ".join(note for note in notes if note)),
    )


def _whisker(percent: float, low: float, high: float, top: float) -> Markup:
    """A point and its interval on a scale from 0 to `top`."""
    left, right, point = (100 * min(1.0, max(0.0, value / top)) for value in (low, high, percent))
    interval = tag("i", class_="span", style=f"left:{left:.1f}%;width:{right - left:.1f}%")
    return tag("div", interval, tag("i", class_="dot", style=f"left:{point:.1f}%"), aria_hidden="true")


def _curves(run: Facts) -> Markup:
    parts = [run.curve(part, part.replace("_", " "), place=1 + i) for i, part in enumerate(run.parts)]
    ranks = [
        run.curve(key, name, looks=True, place=i)
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
        run.curve(key, name, looks=True, place=i)
        for i, (key, name) in enumerate(
            {"knn": "kNN", "probe": "probe", "probe_views": "probe, training views"}.items()
        )
    ]
    charts = [
        line_chart("Loss and its parts" if parts else "Loss", [run.curve("loss", "loss"), *parts]),
        line_chart("Effective rank", ranks),
        line_chart("Online accuracy, percent", accuracy),
        line_chart("Learning rate", [run.curve("lr", "rate")]),
    ]
    if not any(charts):
        return quiet("No step was recorded.")
    return joined(axis_choice(), tag("div", charts, class_="charts"))


def _spectra(run: Facts) -> Markup:
    charts = spectra(run, [("z", "Projections"), ("features", "Features")])
    if not charts:
        return quiet("The run has not looked at its embeddings twice; there is nothing to draw.")
    return joined(
        tag(
            "p",
            "The largest eigenvalues of the covariance over the steps, from the first to the last. Lines "
            "that come together are directions used evenly; lines that fall away are directions lost.",
        ),
        tag("div", charts, class_="charts"),
    )


def _views(run: Facts) -> Markup:
    path = run.folder.views
    if not path.is_file():
        return quiet("The run folder holds no views.png.")
    try:
        data, kind = path.read_bytes(), "png"
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            image.load()
            width, height = image.size
            if len(data) > VIEWS_BYTES:
                image.thumbnail((VIEWS_WIDTH, 20 * VIEWS_WIDTH))
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
    told = "Images in the first column, and the views of each beside it"
    return tag(
        "figure",
        tag(
            "img",
            src=data_uri(data, kind),
            alt=f"{told}{f', {views} of each' if views else ''}: random crops with changed colors",
            width=width,
            height=height,
            class_="views",
        ),
        tag("figcaption", f"{told}. The network learns that these belong together."),
        class_="sheet",
    )


def data_uri(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _time(run: Facts) -> Markup:
    speed = line_chart("Images a second", [run.curve("images_per_second", "images a second")])
    parts: Child = quiet("This run did not record what its steps were made of.")
    if run.milliseconds:
        total = sum(value for _, value in run.milliseconds)
        parts = joined(
            tag("p", f"A step took {number(total)} ms in the mean."),
            stacked_bar("A mean step", run.milliseconds, "milliseconds"),
        )
    memory = f"At most {run.memory_gb:.2f} GB of memory were in use." if run.memory_gb else None
    left = tag("div", parts, tag("p", memory) if memory else None)
    return tag("div", left, speed, class_="charts")


def _table(record: Record, key: str) -> Record:
    """A table inside a record; an empty one where it is missing or something else."""
    found = record.get(key)
    return found if isinstance(found, dict) else {}


def _origin(run: Facts) -> Markup:
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
        tag("p", "As in config.toml, which repeats the run."),
        toml,
    )
