"""Neighbours against all cosines in float64, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from frossl.errors import InputError
from frossl.features import neighbors
from frossl.features.neighbors import OUTLIER_NEIGHBORS, Neighbors, find_neighbors


def rows_of(count: int, *, width: int = 24, centers: int = 60, spread: float = 0.5) -> np.ndarray:
    """Clouds of features, most of them positive, as pooled ones are."""
    random = np.random.default_rng(count)
    around = random.normal(size=(centers, width))[random.integers(0, centers, count)]
    return (0.5 + around + spread * random.normal(size=(count, width))).astype(np.float32)


def find(rows: np.ndarray, **options) -> Neighbors:
    missing = np.flatnonzero(np.isnan(rows[:, 0])).tolist()
    return find_neighbors(lambda start, stop: rows[start:stop].copy(), len(rows), missing=missing, **options)


def by_hand(rows: np.ndarray) -> np.ndarray:
    """(N, N) cosines; NaN where there is no image."""
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return unit @ unit.T


def distances_by_hand(cosines: np.ndarray, k: int = OUTLIER_NEIGHBORS) -> np.ndarray:
    far = np.full(len(cosines), np.nan)
    for i in np.flatnonzero(~np.isnan(cosines.diagonal())):
        others = np.delete(cosines[i], i)
        far[i] = 1 - np.sort(others[~np.isnan(others)])[::-1][:k].mean()
    return far


@pytest.fixture(params=[2048, 37])
def _blocks(request, monkeypatch) -> None:
    monkeypatch.setattr(neighbors, "CHUNK_ROWS", request.param)


@pytest.mark.usefixtures("_blocks")
def test_all_pairs_and_distances_are_those_of_float64(monkeypatch):
    rows = rows_of(200)
    rows[[5, 130, 199]] = np.nan
    cosines = by_hand(rows)
    found = find(rows, threshold=0.8, nearest=True)
    expected = {(i, j) for i in range(200) for j in range(i + 1, 200) if cosines[i, j] >= 0.8}
    assert 100 < len(expected) < 5000
    assert set(map(tuple, found.pairs.tolist())) == expected
    np.testing.assert_allclose(found.cosines, [cosines[i, j] for i, j in found.pairs], atol=1e-5)
    assert (np.diff(found.cosines) <= 0).all()
    np.testing.assert_allclose(found.distances, distances_by_hand(cosines), atol=1e-5)


def test_copies_are_at_one_whatever_float32_makes_of_it():
    rows = np.concatenate([rows_of(50), rows_of(50)])
    found = find(rows, threshold=1.0, nearest=False)
    assert set(map(tuple, found.pairs.tolist())) == {(i, i + 50) for i in range(50)}
    assert found.cosines.max() <= 1


def test_fewer_rows_than_neighbours():
    rows = rows_of(4, width=8)
    far = find(rows, threshold=None, nearest=True).distances
    np.testing.assert_allclose(far, distances_by_hand(by_hand(rows)), atol=1e-5)
    rows[1:] = np.nan
    assert np.isnan(find(rows, threshold=0.5, nearest=True).distances[1:]).all()


def test_groups_are_what_hangs_together():
    pairs = [(0, 1), (5, 9), (1, 4), (7, 8), (9, 2), (4, 0), (3, 6)]
    found = Neighbors(np.array(pairs), np.ones(len(pairs), np.float32), np.zeros(10, np.float32))
    together: list[set[int]] = []
    for pair in pairs:
        touching = [group for group in together if group & set(pair)]
        together = [group for group in together if group not in touching]
        together.append(set(pair).union(*touching))
    groups = found.groups()
    for (a, _), mine in zip(pairs, groups, strict=True):
        for (b, _), other in zip(pairs, groups, strict=True):
            assert (mine == other) == any({a, b} <= group for group in together)
    assert set(groups) == {1, 2, 3, 4}
    assert len(find(rows_of(30), threshold=0.9999, nearest=False).groups()) == 0


def test_a_threshold_that_pairs_everything_is_refused(monkeypatch):
    monkeypatch.setattr(neighbors, "MAX_PAIRS", 100)
    with pytest.raises(InputError, match="more than 100 pairs"):
        find(rows_of(200), threshold=0.1, nearest=False)


@pytest.mark.filterwarnings("ignore:builtin type swigvarlink:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:builtin type SwigPy:DeprecationWarning")
def test_the_index_finds_nearly_what_comparing_all_finds(monkeypatch):
    pytest.importorskip("faiss")
    rows = rows_of(3000)
    rows[[5, 2999]] = np.nan
    exact = find(rows, threshold=0.9, nearest=True)
    monkeypatch.setattr(neighbors, "MAX_EXACT_ROWS", 1000)
    monkeypatch.setattr(neighbors, "CHUNK_ROWS", 700)
    monkeypatch.setattr(neighbors, "PROBED_CELLS", 8)  # of 46 cells
    found = find(rows, threshold=0.9, nearest=True)
    pairs, known = ({tuple(p) for p in n.pairs.tolist()} for n in (found, exact))
    assert len(known) > 1000
    assert pairs <= known
    assert len(pairs) > 0.97 * len(known)
    there = ~np.isnan(exact.distances)
    assert np.array_equal(there, ~np.isnan(found.distances))
    excess = (found.distances - exact.distances)[there]
    assert excess.min() > -1e-5  # an index misses neighbours, and invents none
    assert np.mean(excess < 1e-5) > 0.8


@pytest.mark.filterwarnings("ignore:builtin type swigvarlink:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:builtin type SwigPy:DeprecationWarning")
def test_a_pair_that_the_index_sees_from_one_of_its_rows_only_is_found_once(monkeypatch):
    pytest.importorskip("faiss")
    for name, value in (("MAX_EXACT_ROWS", 1000), ("CHUNK_ROWS", 700), ("PROBED_CELLS", 2)):
        monkeypatch.setattr(neighbors, name, value)
    rows = rows_of(3000, spread=1.0)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    index = neighbors._build_index(
        neighbors.Directions(lambda start, stop: rows[start:stop].copy(), 3000, ())
    )
    ends, _, others = index.range_search(unit, 0.7)
    seen = set(
        zip(np.repeat(np.arange(3000), np.diff(ends.astype(int))).tolist(), others.tolist(), strict=True)
    )
    from_above = {(i, j) for j, i in seen if i < j and (i, j) not in seen}
    assert len(from_above) > 10
    pairs = list(map(tuple, find(rows, threshold=0.7, nearest=False).pairs.tolist()))
    assert len(set(pairs)) == len(pairs)
    assert from_above <= set(pairs)
    cosines = by_hand(rows)
    assert {(min(pair), max(pair)) for pair in seen if pair[0] != pair[1]} <= set(pairs)
    assert min(cosines[i, j] for i, j in pairs) > 0.7 - 1e-5
    monkeypatch.setattr(neighbors, "MAX_PAIRS", len(pairs))
    assert list(map(tuple, find(rows, threshold=0.7, nearest=False).pairs.tolist())) == pairs
    monkeypatch.setattr(neighbors, "MAX_PAIRS", len(pairs) - 1)
    with pytest.raises(InputError, match="more than"):
        find(rows, threshold=0.7, nearest=False)
