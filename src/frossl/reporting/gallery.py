"""Images of a sample: neighbours, and a map to walk about in."""

from __future__ import annotations

import base64
from collections import Counter

import numpy as np

from frossl.reporting.charts import color, number, shape_of
from frossl.reporting.html import Markup, embedded_json, joined, tag, visible
from frossl.reporting.sample import Array, Sample, nearest, spread_queries

WIDTH, HEIGHT, EDGE = 720, 540, 14
GROUPS = 50
"""Buttons of the map's legend, at most; what is left shares one more."""


def sheet_style(sample: Sample, jpeg: bytes) -> str:
    """The thumbnails, once, as the background of every tile; sizes in shares, so that tiles may have any."""
    uri = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
    size = f"{100 * sample.columns}% {100 * sample.rows}%"
    return f".tile{{background-image:url({uri});background-size:{size}}}"


def _place(sample: Sample, i: int) -> str:
    row, column = divmod(i, sample.columns)
    x = 100 * column / max(1, sample.columns - 1)
    y = 100 * row / max(1, sample.rows - 1)
    return f"{x:.3f}% {y:.3f}%"


def _tile(sample: Sample, i: int, told: str) -> Markup:
    place = f"background-position:{_place(sample, i)}"
    return tag("span", class_="tile", role="img", aria_label=told, style=place)


def neighbours(sample: Sample) -> Markup:
    """Rows of a query and the six images most like it."""
    if len(sample) < 2:
        return tag("p", "One image has no neighbours.", class_="quiet")
    labelled = np.flatnonzero(sample.labels >= 0)
    if len(labelled):
        queries = [int(labelled[i]) for i in spread_queries(sample.labels[labelled])]
    else:
        queries = spread_queries(sample.clusters)
    found = nearest(sample.features, queries)
    same = sum(
        sample.labels[i] == sample.labels[j] for i, row in zip(queries, found, strict=True) for j in row
    )
    told = (
        "Each row begins with a query, followed by the images whose features are most like it (cosine), "
        f"nearest first, among the {len(sample):,} of the sample. Queries are chosen by their place in the "
        "list, not by how well they do."
    )
    if len(labelled):
        told += (
            f" {same} of {found.size} neighbours share the query's label; a dashed frame and ≠ mark others."
        )
    rows = [
        tag(
            "li",
            _named_tile(sample, query, "query"),
            tag("ol", [tag("li", _named_tile(sample, int(j), _match(sample, query, int(j)))) for j in row]),
        )
        for query, row in zip(queries, found, strict=True)
    ]
    return joined(tag("p", told), tag("ul", rows, class_="neighbours"))


def _match(sample: Sample, query: int, other: int) -> str:
    if min(sample.labels[query], sample.labels[other]) < 0:
        return ""
    return "same" if sample.labels[query] == sample.labels[other] else "different"


def _named_tile(sample: Sample, i: int, kind: str) -> Markup:
    label, name = sample.label(i), str(sample.names[i])
    words = {"query": "query", "same": "same label", "different": "different label", "": ""}
    told = ", ".join(part for part in (words[kind], label, name) if part)
    return tag(
        "figure",
        _tile(sample, i, told),
        tag("figcaption", label if label is not None else name, title=name, aria_hidden="true"),
        class_=f"image {kind}",
    )


def map_of_images(sample: Sample) -> Markup:
    """Points by class (or cluster), each class one path; the script finds what is under the cursor."""
    here: Array = np.asarray(np.isfinite(sample.map).all(1))
    if not here.any():
        return tag("p", "The map holds no finite point.", class_="quiet")
    points, groups = _on_paper(sample.map, here), _groups(sample)
    names = list(dict.fromkeys(name for name, _ in sorted(groups, key=lambda group: group[1])))
    index = {name: i for i, name in enumerate(names)}
    of = [index[name] for name, _ in groups]
    paths: list[list[str]] = [[] for _ in names]
    for i in np.flatnonzero(here):
        paths[of[i]].append(f"M{points[i, 0]:g} {points[i, 1]:g}{shape_of(of[i])}")
    counts = Counter(of[i] for i in np.flatnonzero(here))
    what = "label" if sample.labelled else "cluster"
    drawing = tag(
        "svg",
        [tag("path", d="".join(path), class_=color(i), data_group=i) for i, path in enumerate(paths) if path],
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"Map of {int(here.sum()):,} images, colored by {what}: "
        + ", ".join(f"{names[i]} {count:,}" for i, count in counts.most_common(12)),
    )
    legend = [
        tag(
            "button",
            _mark(i),
            names[i],
            tag("span", f" {counts[i]:,}"),
            type="button",
            aria_pressed="true",
            data_group=i,
        )
        for i in sorted(counts)
    ]
    both = [tag("button", word, type="button", data_all=word, class_="plain") for word in ("all", "none")]
    data = embedded_json(
        {
            "x": [float(x) for x in points[:, 0]],
            "y": [float(y) for y in points[:, 1]],
            "here": [int(i) for i in np.flatnonzero(here)],
            "group": of,
            "name": [visible(str(name)) for name in sample.names],
            "label": [visible(sample.label(i) or names[of[i]]) for i in range(len(sample))],
            "columns": sample.columns,
            "rows": sample.rows,
            "width": WIDTH,
            "height": HEIGHT,
        }
    )
    parts = (tag("span", class_="tile"), tag("b"), tag("span", class_="file"))
    card = tag("div", parts, class_="card", hidden=True)
    return joined(
        tag("p", f"{sample.note.rstrip('.')}." if sample.note else None, f" Colored by {what}."),
        tag(
            "p",
            "Point at an image to see it, or focus the map and walk with the arrow keys. Enter or Space pins "
            "an image, Escape lets go.",
            class_="quiet",
            id="map-help",
        ),
        tag("div", legend, both, class_="legend", role="group", aria_label=f"Show by {what}"),
        tag("div", drawing, card, class_="map"),
        tag("p", class_="unseen", aria_live="polite", id="map-said"),
        data,
    )


def _mark(i: int) -> Markup:
    path = tag("path", d=f"M6 6{shape_of(i)}", class_=color(i))
    return tag("svg", path, viewBox="0 0 12 12", width=12, height=12, aria_hidden="true")


def _on_paper(points: Array, here: Array) -> Array:
    """Into the drawing, with one scale for both axes; (M, 2), rounded."""
    known = points[here].astype(np.float64)
    low, high = known.min(0), known.max(0)
    room = np.array([WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE])
    scale = (room / np.maximum(high - low, 1e-12)).min()
    centered = np.where(here[:, None], points.astype(np.float64) - (low + high) / 2, 0.0)
    placed: Array = (centered * scale + np.array([WIDTH, HEIGHT]) / 2).round(1)
    return placed


def _groups(sample: Sample) -> list[tuple[str, float]]:
    """For each image the name of what it belongs to, and its rank in the legend."""
    if not sample.labelled:
        return [(f"cluster {number(int(c))}", float(c)) for c in sample.clusters]
    most = {label for label, _ in Counter(sample.labels.tolist()).most_common(GROUPS)}
    return [
        ("no label", GROUPS * 1e6)
        if label < 0
        else (str(sample.classes[label]), float(label))
        if label in most
        else ("other classes", GROUPS * 1e5)
        for label in sample.labels.tolist()
    ]
