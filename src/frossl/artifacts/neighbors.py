"""Which images are near each other, and which are near none: by cosine, in bounded memory.

Up to `EXACT` rows, all are compared with all. More are looked up in an index of faiss that compares each with
those in the cells around it.
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

EXACT = 100_000
"""Rows up to which all are compared with all."""
NEAREST = 10
"""Neighbours whose mean distance says how far off an image is."""
MOST_PAIRS = 1_000_000
ROWS = 2048
"""Compared at a time: 16 MB of cosines."""
SLACK = 1e-6
"""What float32 may lose: two copies are at 1."""

Read = Callable[[int, int], NDArray[np.float32]]
"""Rows from a number up to another."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Neighbors:
    """What was found among N rows."""

    pairs: NDArray[np.int64]
    """(P, 2): rows that are near each other, the nearest first."""
    cosines: NDArray[np.float32]
    """(P,)"""
    distances: NDArray[np.float32]
    """(N,): one minus the mean cosine with the nearest others; NaN for missing rows."""

    def groups(self) -> NDArray[np.int64]:
        """(P,): the group of each pair, counted from 1 on: what is near one is in the group of both."""
        leader: dict[int, int] = {}

        def find(row: int) -> int:
            while (above := leader.setdefault(row, row)) != row:
                leader[row] = leader[above]
                row = leader[row]
            return row

        for row, other in self.pairs.tolist():
            leader[find(other)] = find(row)
        number: dict[int, int] = {}
        found = [number.setdefault(find(row), len(number) + 1) for row in self.pairs[:, 0].tolist()]
        return np.array(found, np.int64)


def check_search(count: int) -> None:
    """Refuse what cannot be searched here, before any work."""
    if count > EXACT and find_spec("faiss") is None:
        raise InputError(
            f"{count:,} images are too many to compare all with all (up to {EXACT:,}); an index needs its "
            "library: pip install 'frossl[search]'"
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
    """threshold: pairs at or above this cosine, none if not given. nearest: distances, too. missing: rows
    that do not count."""
    directions = Directions(read, count, missing)
    found = _Found(directions.present, threshold, NEAREST if nearest else 0)
    search = _compare_all if count <= EXACT else _look_up
    search(directions, found, progress or (lambda done, total: None))
    return found.neighbors()


class Directions:
    """Rows of length 1, some at a time. Missing ones are zero.

    Their mean is not taken off: it told copies and strangers apart no better (docs/decisions.md).
    """

    def __init__(self, read: Read, count: int, missing: Collection[int]) -> None:
        self._read, self.count = read, count
        self.present = torch.ones(count, dtype=torch.bool)
        self.present[list(missing)] = False

    def __getitem__(self, start: int) -> Tensor:
        """Those from `start` on, at most `ROWS`."""
        rows = torch.from_numpy(self._read(start, min(start + ROWS, self.count)))
        rows[~self.present[start : start + ROWS]] = 0
        return F.normalize(rows, dim=1)

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        return ((start, self[start]) for start in range(0, self.count, ROWS))


class _Found:
    """Collects pairs, and the nearest of every row."""

    def __init__(self, present: Tensor, threshold: float | None, nearest: int) -> None:
        self.present, self.threshold = present, threshold
        k = min(nearest, max(0, int(present.sum()) - 1))
        self.best = torch.full((len(present), k), -torch.inf)
        # at once, as small pieces kept among large ones that come and go left holes: 1.3 GB of 100,000 rows
        self._pairs = torch.empty(2 * MOST_PAIRS, 2, dtype=torch.int64)  # most are seen from both rows
        self._cosines = torch.empty(2 * MOST_PAIRS)
        self._count = 0

    def add_pairs(self, rows: Tensor, others: Tensor, cosines: Tensor) -> None:
        """Each counts once, whichever of its rows it was seen from: an index may see it from one only."""
        apart = rows != others
        rows, others, cosines = rows[apart], others[apart], cosines[apart].clamp(max=1)
        new = torch.stack([torch.minimum(rows, others), torch.maximum(rows, others)], 1)
        if self._count + len(new) > len(self._pairs):
            new, cosines = self._once(new, cosines)
            self._count = 0
        end = self._count + len(new)
        self._pairs[self._count : end], self._cosines[self._count : end] = new, cosines
        self._count = end

    def _once(self, new: Tensor | None = None, cosines: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All pairs so far, and new ones, without doubles."""
        pairs, known = self._pairs[: self._count], self._cosines[: self._count]
        if new is not None and cosines is not None:
            pairs, known = torch.cat([pairs, new]), torch.cat([known, cosines])
        lower, higher = pairs.numpy().T
        _, first = np.unique(lower * len(self.present) + higher, return_index=True)
        if len(first) > MOST_PAIRS:
            raise InputError(
                f"more than {MOST_PAIRS:,} pairs have a cosine of {self.threshold:g} or more; give a higher "
                "--duplicates: features that are there already are not computed again"
            )
        return pairs[first], known[first]

    def add_nearest(self, start: int, cosines: Tensor) -> None:
        """Candidates (n, m) of the rows from `start` on; those that do not count are −∞."""
        better = (cosines.amax(1) > self.best[start : start + len(cosines), -1]).nonzero()[:, 0]
        candidates = torch.cat([self.best[start + better], cosines[better]], 1)
        self.best[start + better] = candidates.topk(self.best.shape[1], dim=1).values

    def neighbors(self) -> Neighbors:
        pairs, cosines = (found.numpy() for found in self._once())
        order = np.lexsort((pairs[:, 1], pairs[:, 0], -cosines))
        counted = self.best.isfinite()  # an index may find fewer
        mean = self.best.where(counted, 0).sum(1) / counted.sum(1).clamp_min(1)
        distances = torch.where(self.present, 1 - mean, torch.nan)
        return Neighbors(pairs[order], cosines[order], distances.numpy())


def _compare_all(directions: Directions, found: _Found, progress: Progress) -> None:
    starts = range(0, directions.count, ROWS)
    total, done = len(starts) * (len(starts) + 1) // 2, 0
    for i, start in enumerate(starts):
        mine = directions[start]
        for other in starts[i:]:
            cosines = mine @ (mine if other == start else directions[other]).T
            if found.threshold is not None:
                rows, others = (cosines >= found.threshold - SLACK).nonzero(as_tuple=True)
                found.add_pairs(rows + start, others + other, cosines[rows, others])
            if found.best.shape[1]:
                if other == start:
                    cosines.fill_diagonal_(-torch.inf)
                for side, first in enumerate((start, other)):
                    gone = (~found.present[first : first + ROWS]).nonzero()[:, 0]
                    cosines.index_fill_(side, gone, -torch.inf)
                found.add_nearest(start, cosines)
                if other != start:
                    found.add_nearest(other, cosines.T)
            done += 1
            progress(done, total)


POINTS = 64
"""Rows that each cell's center is learned from."""
PROBES = 64
"""Cells that are looked into for every row: of 110,000 features, 99.9% of the ten nearest were in them."""


def _look_up(directions: Directions, found: _Found, progress: Progress) -> None:
    """An inverted file of faiss, without compression: exact within the cells that are looked into."""
    index = _index(directions)
    for start, rows in directions:
        if found.threshold is not None:
            ends, cosines, others = index.range_search(rows.numpy(), found.threshold - SLACK)
            mine = np.repeat(np.arange(start, start + len(rows)), np.diff(ends.astype(np.int64)))
            found.add_pairs(*map(torch.from_numpy, (mine, others, cosines)))
        if k := found.best.shape[1]:
            near, others = map(torch.from_numpy, index.search(rows.numpy(), k + 1))
            itself = others == torch.arange(start, start + len(rows))[:, None]
            found.add_nearest(start, near.masked_fill(itself | (others < 0), -torch.inf))
        progress(min(start + ROWS, directions.count), directions.count)


def _index(directions: Directions) -> Any:
    import faiss

    ids = directions.present.nonzero()[:, 0]
    cells = max(1, min(int(4 * len(ids) ** 0.5), len(ids) // POINTS))
    chosen = torch.zeros(directions.count, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    chosen[ids[torch.randperm(len(ids), generator=generator)[: cells * POINTS]]] = True
    sample = torch.cat([rows[chosen[start : start + ROWS]] for start, rows in directions])
    width = sample.shape[1]
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(sample.numpy())
    index.nprobe = PROBES
    for start, rows in directions:
        here = directions.present[start : start + ROWS]
        index.add_with_ids(rows[here].numpy(), torch.arange(start, start + len(rows))[here].numpy())
    return index
