"""Write the outputs of `embed`: chunks of features, near-duplicates and outliers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from frossl.features.blocks import Images
from frossl.features.formats import Rows, write_lines
from frossl.features.neighbors import Progress, find_neighbors
from frossl.features.store import FeatureStore

ROWS_PER_CHUNK = 4096
"""Rows written at a time, which is a row group of Parquet."""


def iterate_rows(images: Images, store: FeatureStore) -> Iterator[Rows]:
    """Yield names, labels and features of all images, in chunks."""
    for start in range(0, len(images), ROWS_PER_CHUNK):
        rows = range(start, min(start + ROWS_PER_CHUNK, len(images)))
        features = store.read(start, rows.stop)
        yield Rows([images.name(row) for row in rows], [images.label(row) for row in rows], features)


def write_neighbors(
    store: FeatureStore,
    images: Images,
    bad: Collection[int],
    side_files: dict[str, Path],
    *,
    duplicates: float | None,
    outliers: int | None,
    progress: Progress,
) -> dict[str, int]:
    """Search near-duplicates and outliers, as far as requested, and write their files.

    Args:
        store: Features of the images.
        images: Names of the images.
        bad: Rows without features.
        side_files: Files to write, by kind.
        duplicates: Smallest cosine similarity of near-duplicates; not searched if None.
        outliers: Number of outliers; not searched if None.
        progress: Called with the number of rows done and their total.

    Returns:
        Numbers of `pairs` and `groups` of near-duplicates; empty if they were not requested.
    """
    neighbors = find_neighbors(
        store.read,
        len(images),
        threshold=duplicates,
        nearest=outliers is not None,
        missing=bad,
        progress=progress,
    )
    counts: dict[str, int] = {}
    if duplicates is not None:
        groups = neighbors.groups()
        counts = {"pairs": len(groups), "groups": int(groups.max(initial=0))}
        pairs = zip(neighbors.pairs.tolist(), neighbors.cosines.tolist(), groups.tolist(), strict=True)
        lines = ((images.name(a), images.name(b), f"{near:.6f}", group) for (a, b), near, group in pairs)
        _write_csv(store, side_files["duplicates"], ("name", "other", "cosine", "group"), lines)
    if outliers is not None:
        order = (-neighbors.distances).argsort()[: min(outliers, int((~np.isnan(neighbors.distances)).sum()))]
        rows = ((images.name(row), f"{neighbors.distances[row]:.6f}") for row in order.tolist())
        _write_csv(store, side_files["outliers"], ("name", "distance"), rows)
    return counts


def _write_csv(
    store: FeatureStore, path: Path, titles: tuple[str, ...], lines: Iterator[tuple[Any, ...]]
) -> None:
    store.write_output(path, lambda file: write_lines(file, chain([titles], lines)))
