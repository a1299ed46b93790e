"""Sections of the report that show images: nearest neighbours and the map."""

from __future__ import annotations

import base64
from collections import Counter

import numpy as np

from frossl.reporting.charts import color, number, shape_of
from frossl.reporting.html import Markup, embedded_json, joined, tag, visible
from frossl.reporting.sample import Array, Sample, nearest, spread_queries

WIDTH, HEIGHT = 720, 540
MARGIN = 14
"""Size of the map and the space around its points, in SVG units."""
MAX_GROUPS = 50
"""Largest number of classes in the legend of the map; all others share one more button."""


def sheet_style(sample: Sample, jpeg: bytes) -> str:
    """Return the CSS rule that makes the sheet of thumbnails the background of every tile.

    The sheet is embedded once; sizes are relative, so that tiles may have any size.
    """
    uri = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
    size = f"{100 * sample.columns}% {100 * sample.rows}%"
    return f".tile{{background-image:url({uri});background-size:{size}}}"


def _place(sample: Sample, i: int) -> str:
    row, column = divmod(i, sample.columns)
    x = 100 * column / max(1, sample.columns - 1)
    y = 100 * row / max(1, sample.rows - 1)
    return f"{x:.3f}% {y:.3f}%"


def _tile(sample: Sample, i: int, label: str) -> Markup:
    place = f"background-position:{_place(sample, i)}"
    return tag("span", class_="tile", role="img", aria_label=label, style=place)


def neighbours(sample: Sample) -> Markup:
    """Return rows of a query image and its six nearest neighbours."""
    if len(sample) < 2:
        return tag("p", "A single image has no neighbours.", class_="quiet")
    labelled = np.flatnonzero(sample.labels >= 0)
    if len(labelled):
        queries = [int(labelled[i]) for i in spread_queries(sample.labels[labelled])]
    else:
        queries = spread_queries(sample.clusters)
    found = nearest(sample.features, queries)
    same = sum(
        sample.labels[i] == sample.labels[j] for i, row in zip(queries, found, strict=True) for j in row
    )
    text = (
        "Each row begins with a query, followed by the images with the most similar features (cosine), "
        f"nearest first, among the {len(sample):,} images of the sample. Queries are chosen by "
        "their position in the list, not by their result."
    )
    if len(labelled):
        text += (
            f" {same} of {found.size} neighbours have the query's label; a dashed frame and ≠ mark others."
        )
    rows = [
        tag(
            "li",
            _named_tile(sample, query, "query"),
            tag("ol", [tag("li", _named_tile(sample, int(j), _match(sample, query, int(j)))) for j in row]),
        )
        for query, row in zip(queries, found, strict=True)
    ]
    return joined(tag("p", text), tag("ul", rows, class_="neighbours"))


def _match(sample: Sample, query: int, other: int) -> str:
    if min(sample.labels[query], sample.labels[other]) < 0:
        return ""
    return "same" if sample.labels[query] == sample.labels[other] else "different"


def _named_tile(sample: Sample, i: int, kind: str) -> Markup:
    label, name = sample.label(i), str(sample.names[i])
    words = {"query": "query", "same": "same label", "different": "different label", "": ""}
    alt = ", ".join(part for part in (words[kind], label, name) if part)
    return tag(
        "figure",
        _tile(sample, i, alt),
        tag("figcaption", label if label is not None else name, title=name, aria_hidden="true"),
        class_=f"image {kind}",
    )


def map_of_images(sample: Sample) -> Markup:
    """Return the map of the sample, colored by class or cluster.

    Each class is one SVG path, so that large samples stay small; the script finds the image under the cursor.
    """
    here: Array = np.asarray(np.isfinite(sample.map).all(1))
    if not here.any():
        return tag("p", "The map has no finite points.", class_="quiet")
    points, groups = _svg_points(sample.map, here), _groups(sample)
    names = list(dict.fromkeys(name for name, _ in sorted(groups, key=lambda group: group[1])))
    index = {name: i for i, name in enumerate(names)}
    group_of = [index[name] for name, _ in groups]
    paths: list[list[str]] = [[] for _ in names]
    for i in np.flatnonzero(here):
        paths[group_of[i]].append(f"M{points[i, 0]:g} {points[i, 1]:g}{shape_of(group_of[i])}")
    counts = Counter(group_of[i] for i in np.flatnonzero(here))
    what = "label" if sample.labelled else "cluster"
    drawing = tag(
        "svg",
        [tag("path", d="".join(path), class_=color(i), data_group=i) for i, path in enumerate(paths) if path],
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"Map of {int(here.sum()):,} images, colored by {what}: "
        + ", ".join(f"{names[i]} {count:,}" for i, count in counts.most_common(12)),
    )
    parts = (tag("span", class_="tile"), tag("b"), tag("span", class_="file"))
    return joined(
        tag("p", f"{sample.note.rstrip('.')}." if sample.note else None, f" Colored by {what}."),
        tag(
            "p",
            "Point at an image to see it, or focus the map and move with the arrow keys. Enter or Space pins "
            "an image, Escape releases it.",
            class_="quiet",
            id="map-help",
        ),
        tag("div", _legend(names, counts), class_="legend", role="group", aria_label=f"Show by {what}"),
        tag("div", drawing, tag("div", parts, class_="card", hidden=True), class_="map"),
        tag("p", class_="unseen", aria_live="polite", id="map-said"),
        _map_data(sample, points, here, group_of, names),
    )


def _legend(names: list[str], counts: Counter[int]) -> list[Markup]:
    """Return a button for each group, and two for all and none of them."""
    groups = [
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
    return groups + both


def _map_data(sample: Sample, points: Array, here: Array, group_of: list[int], names: list[str]) -> Markup:
    """Return the numbers that the script of the map reads."""
    return embedded_json(
        {
            "x": [float(x) for x in points[:, 0]],
            "y": [float(y) for y in points[:, 1]],
            "here": [int(i) for i in np.flatnonzero(here)],
            "group": group_of,
            "name": [visible(str(name)) for name in sample.names],
            "label": [visible(sample.label(i) or names[group_of[i]]) for i in range(len(sample))],
            "columns": sample.columns,
            "rows": sample.rows,
            "width": WIDTH,
            "height": HEIGHT,
        }
    )


def _mark(i: int) -> Markup:
    path = tag("path", d=f"M6 6{shape_of(i)}", class_=color(i))
    return tag("svg", path, viewBox="0 0 12 12", width=12, height=12, aria_hidden="true")


def _svg_points(points: Array, here: Array) -> Array:
    """Return the points in SVG units, (M, 2), rounded, with the same scale for both axes."""
    known = points[here].astype(np.float64)
    low, high = known.min(0), known.max(0)
    space = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scale = (space / np.maximum(high - low, 1e-12)).min()
    centered = np.where(here[:, None], points.astype(np.float64) - (low + high) / 2, 0.0)
    placed: Array = (centered * scale + np.array([WIDTH, HEIGHT]) / 2).round(1)
    return placed


def _groups(sample: Sample) -> list[tuple[str, float]]:
    """Return for each image the name of its class or cluster, and its sort key in the legend."""
    if not sample.labelled:
        return [(f"cluster {number(int(c))}", float(c)) for c in sample.clusters]
    most = {label for label, _ in Counter(sample.labels.tolist()).most_common(MAX_GROUPS)}
    return [
        ("no label", MAX_GROUPS * 1e6)
        if label < 0
        else (str(sample.classes[label]), float(label))
        if label in most
        else ("other classes", MAX_GROUPS * 1e5)
        for label in sample.labels.tolist()
    ]
