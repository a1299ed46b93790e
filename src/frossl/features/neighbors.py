"""Near-duplicates and outliers by cosine similarity, in bounded memory.

Up to `MAX_EXACT_ROWS` rows, all pairs are compared. Above that, an inverted-file index of faiss compares each
row with those in the nearest cells.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from frossl.errors import InputError

MAX_EXACT_ROWS = 100_000
"""Largest number of rows of which all pairs are compared."""
OUTLIER_NEIGHBORS = 10
"""Number of neighbours whose mean distance is the outlier score of an image."""
MAX_PAIRS = 1_000_000
"""Largest number of near-duplicate pairs."""
CHUNK_ROWS = 2048
"""Rows compared at a time: 16 MB of cosines."""
ROUNDING_SLACK = 1e-6
"""Rounding error of a cosine in float32, subtracted from thresholds: two copies must count at 1."""
POINTS_PER_CELL = 64
"""Rows from which the center of each cell is trained."""
PROBED_CELLS = 64
"""Cells searched for every row: of 110,000 features, 99.9% of the ten nearest were in them."""

Read = Callable[[int, int], NDArray[np.float32]]
"""Function that returns the rows from a start up to a stop."""
Progress = Callable[[int, int], None]
"""Callback with the work done and its total."""


@dataclass(frozen=True)
class Neighbors:
    """Near-duplicates and distances of N rows."""

    pairs: NDArray[np.int64]
    """Pairs of near-duplicate rows (P, 2), the nearest first."""
    cosines: NDArray[np.float32]
    """Cosines of the pairs (P,)."""
    distances: NDArray[np.float32]
    """One minus the mean cosine with the nearest other rows (N,); NaN for missing rows."""

    def groups(self) -> NDArray[np.int64]:
        """Return the group of each pair (P,), counted from 1: the connected components of the pairs."""
        parent: dict[int, int] = {}

        def find(row: int) -> int:
            while (above := parent.setdefault(row, row)) != row:
                parent[row] = parent[above]
                row = parent[row]
            return row

        for row, other in self.pairs.tolist():
            parent[find(other)] = find(row)
        numbers: dict[int, int] = {}
        groups = [numbers.setdefault(find(row), len(numbers) + 1) for row in self.pairs[:, 0].tolist()]
        return np.array(groups, np.int64)


def check_search(count: int) -> None:
    """Raise an `InputError` if `count` rows need an index and faiss is not installed."""
    if count > MAX_EXACT_ROWS and find_spec("faiss") is None:
        raise InputError(
            f"{count:,} images are too many to compare all with all (up to {MAX_EXACT_ROWS:,}); an index "
            "needs its library: pip install 'frossl[search]'"
        )


def find_neighbors(
    read: Read,
    count: int,
    *,
    threshold: float | None,
    nearest: bool,
    missing: Collection[int] = (),
    progress: Progress | None = None,
) -> Neighbors:
    """Find near-duplicates, and the distances of all rows to their nearest neighbours.

    Args:
        read: Function that returns the rows (n, F) from a start up to a stop.
        count: Number of rows N.
        threshold: Cosine at or above which two rows are near-duplicates; None to skip the search for pairs.
        nearest: Whether to compute distances.
        missing: Rows to leave out.
        progress: Callback with the work done and its total.

    Raises:
        InputError: If there are more than `MAX_PAIRS` pairs.
    """
    directions = Directions(read, count, missing)
    found = _Collector(directions.present, threshold, OUTLIER_NEIGHBORS if nearest else 0)
    search = _compare_all if count <= MAX_EXACT_ROWS else _search_index
    search(directions, found, progress or (lambda done, total: None))
    return found.neighbors()


class Directions:
    """Rows normalized to length 1, read chunk by chunk; missing rows are zero.

    The mean is not subtracted: that separated duplicates from other pairs no better (docs/decisions.md).
    """

    def __init__(self, read: Read, count: int, missing: Collection[int]) -> None:
        self._read, self.count = read, count
        self.present = torch.ones(count, dtype=torch.bool)
        self.present[list(missing)] = False

    def __getitem__(self, start: int) -> Tensor:
        """Return the rows from `start` on, at most `CHUNK_ROWS`."""
        rows = torch.from_numpy(self._read(start, min(start + CHUNK_ROWS, self.count)))
        rows[~self.present[start : start + CHUNK_ROWS]] = 0
        return F.normalize(rows, dim=1)

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        return ((start, self[start]) for start in range(0, self.count, CHUNK_ROWS))


class _Collector:
    """Collects pairs, and the highest cosines of every row."""

    def __init__(self, present: Tensor, threshold: float | None, nearest: int) -> None:
        self.present, self.threshold = present, threshold
        k = min(nearest, max(0, int(present.sum()) - 1))
        self.best = torch.full((len(present), k), -torch.inf)
        # allocated once: small tensors between large temporary ones fragmented memory, 1.3 GB at 100,000 rows
        self._pairs = torch.empty(2 * MAX_PAIRS, 2, dtype=torch.int64)  # most pairs are found from both rows
        self._cosines = torch.empty(2 * MAX_PAIRS)
        self._count = 0

    def add_pairs(self, rows: Tensor, others: Tensor, cosines: Tensor) -> None:
        """Add pairs, lower row first, so that doubles can be dropped: an index may find a pair only once."""
        distinct = rows != others
        rows, others, cosines = rows[distinct], others[distinct], cosines[distinct].clamp(max=1)
        new = torch.stack([torch.minimum(rows, others), torch.maximum(rows, others)], 1)
        if self._count + len(new) > len(self._pairs):
            new, cosines = self._unique(new, cosines)
            self._count = 0
        end = self._count + len(new)
        self._pairs[self._count : end], self._cosines[self._count : end] = new, cosines
        self._count = end

    def _unique(self, new: Tensor | None = None, cosines: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return all pairs so far, and new ones, without doubles."""
        pairs, known = self._pairs[: self._count], self._cosines[: self._count]
        if new is not None and cosines is not None:
            pairs, known = torch.cat([pairs, new]), torch.cat([known, cosines])
        lower, higher = pairs.numpy().T
        _, first = np.unique(lower * len(self.present) + higher, return_index=True)
        if len(first) > MAX_PAIRS:
            raise InputError(
                f"more than {MAX_PAIRS:,} pairs have a cosine of {self.threshold:g} or more; give a higher "
                "--duplicates: features that are there already are not computed again"
            )
        return pairs[first], known[first]

    def add_nearest(self, start: int, cosines: Tensor) -> None:
        """Update the highest cosines of the rows from `start` on by candidates (n, m); −∞ is ignored."""
        better = (cosines.amax(1) > self.best[start : start + len(cosines), -1]).nonzero()[:, 0]
        candidates = torch.cat([self.best[start + better], cosines[better]], 1)
        self.best[start + better] = candidates.topk(self.best.shape[1], dim=1).values

    def neighbors(self) -> Neighbors:
        """Return the result, with pairs sorted by cosine."""
        pairs, cosines = (tensor.numpy() for tensor in self._unique())
        order = np.lexsort((pairs[:, 1], pairs[:, 0], -cosines))
        valid = self.best.isfinite()  # an index may find fewer neighbours
        mean = self.best.where(valid, 0).sum(1) / valid.sum(1).clamp_min(1)
        distances = torch.where(self.present, 1 - mean, torch.nan)
        return Neighbors(pairs[order], cosines[order], distances.numpy())


def _compare_all(directions: Directions, found: _Collector, progress: Progress) -> None:
    starts = range(0, directions.count, CHUNK_ROWS)
    total, done = len(starts) * (len(starts) + 1) // 2, 0
    for i, start in enumerate(starts):
        rows_here = directions[start]
        for other in starts[i:]:
            cosines = rows_here @ (rows_here if other == start else directions[other]).T
            if found.threshold is not None:
                rows, others = (cosines >= found.threshold - ROUNDING_SLACK).nonzero(as_tuple=True)
                found.add_pairs(rows + start, others + other, cosines[rows, others])
            if found.best.shape[1]:
                if other == start:
                    cosines.fill_diagonal_(-torch.inf)
                for side, first in enumerate((start, other)):
                    missing = (~found.present[first : first + CHUNK_ROWS]).nonzero()[:, 0]
                    cosines.index_fill_(side, missing, -torch.inf)
                found.add_nearest(start, cosines)
                if other != start:
                    found.add_nearest(other, cosines.T)
            done += 1
            progress(done, total)


def _search_index(directions: Directions, found: _Collector, progress: Progress) -> None:
    """Search an inverted-file index without compression: exact within the probed cells."""
    index = _build_index(directions)
    for start, rows in directions:
        if found.threshold is not None:
            ends, cosines, others = index.range_search(rows.numpy(), found.threshold - ROUNDING_SLACK)
            sources = np.repeat(np.arange(start, start + len(rows)), np.diff(ends.astype(np.int64)))
            found.add_pairs(*map(torch.from_numpy, (sources, others, cosines)))
        if k := found.best.shape[1]:
            nearest, others = map(torch.from_numpy, index.search(rows.numpy(), k + 1))
            itself = others == torch.arange(start, start + len(rows))[:, None]
            found.add_nearest(start, nearest.masked_fill(itself | (others < 0), -torch.inf))
        progress(min(start + CHUNK_ROWS, directions.count), directions.count)


def _build_index(directions: Directions) -> Any:
    import faiss

    ids = directions.present.nonzero()[:, 0]
    cells = max(1, min(int(4 * len(ids) ** 0.5), len(ids) // POINTS_PER_CELL))
    chosen = torch.zeros(directions.count, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    chosen[ids[torch.randperm(len(ids), generator=generator)[: cells * POINTS_PER_CELL]]] = True
    sample = torch.cat([rows[chosen[start : start + CHUNK_ROWS]] for start, rows in directions])
    width = sample.shape[1]
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(sample.numpy())
    index.nprobe = PROBED_CELLS
    for start, rows in directions:
        present = directions.present[start : start + CHUNK_ROWS]
        index.add_with_ids(rows[present].numpy(), torch.arange(start, start + len(rows))[present].numpy())
    return index
