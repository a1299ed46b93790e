"""The interval of a difference: published figures, another formula, and how often it covers the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from frossl.evaluation import Difference, Score
from frossl.intervals import paired_interval, unpaired_interval


def scores(first: np.ndarray, second: np.ndarray) -> tuple[Score, Score]:
    return Score.of(torch.from_numpy(first)), Score.of(torch.from_numpy(second))


def test_the_paired_interval_is_that_of_the_mean_of_differences_with_two_images_more():
    random = np.random.default_rng(0)
    first, second = random.random(80) < 0.7, random.random(80) < 0.5
    each = np.append(first.astype(float) - second, [1, -1, 0])
    weights = np.append(np.ones(80), [0.5, 0.5, 1.0])
    mean = np.average(each, weights=weights)
    error = np.sqrt(np.average((each - mean) ** 2, weights=weights) / weights.sum())
    found = Difference.between(*scores(first, second))
    assert found.points == pytest.approx(100 * (first.mean() - second.mean()))
    assert found.interval == pytest.approx((100 * (mean - 1.96 * error), 100 * (mean + 1.96 * error)))


def test_the_unpaired_interval_is_newcombes():
    """56 of 70 and 48 of 80: 0.0524 to 0.3339 in Newcombe (1998), method 10."""
    first, second = (Score(100 * right / n, 0.0, n) for right, n in ((56, 70), (48, 80)))
    found = Difference.between(first, second)
    assert found.interval == pytest.approx((5.24, 33.39), abs=0.01)
    assert found.points == pytest.approx(20.0)
    backwards = Difference.between(second, first)
    assert backwards.interval == pytest.approx((-found.interval[1], -found.interval[0]))


@pytest.mark.parametrize("images", [40, 500])
@pytest.mark.parametrize("cells", [(0.3, 0.2, 0.2, 0.3), (0.6, 0.1, 0.02, 0.28), (0.9, 0.06, 0.02, 0.02)])
def test_the_paired_interval_covers_the_truth_nineteen_times_in_twenty(images, cells):
    """cells: both right, only the first, only the second, none."""
    random, truth = np.random.default_rng(1), 100 * (cells[1] - cells[2])
    draws = random.multinomial(images, cells, size=4000)
    intervals = np.array([paired_interval(images, gained, lost) for _, gained, lost, _ in draws])
    covered = ((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])).mean()
    assert 0.935 < covered < 0.985


def test_results_that_agree_are_told_apart_better_as_pairs():
    random = np.random.default_rng(2)
    first = random.random(1000) < 0.6
    second = first & (random.random(1000) < 0.95)
    paired = Difference.between(*scores(first, second)).interval
    assert paired[0] > 0
    alone = unpaired_interval(
        *(x for score in scores(first, second) for x in (score.percent, score.interval))
    )
    assert alone[0] < 0
    assert paired[1] - paired[0] < 0.5 * (alone[1] - alone[0])


def test_no_difference_at_all_has_a_width():
    first = np.ones(30, bool)
    low, high = Difference.between(*scores(first, first)).interval
    assert low == pytest.approx(-high)
    assert high > 3


def test_scores_over_draws_have_no_pairs():
    draws = Score.over([Score.of(torch.rand(50) < 0.5) for _ in range(3)])
    one = Score.of(torch.rand(50) < 0.5)
    assert Difference.between(draws, one).interval == unpaired_interval(
        draws.percent, draws.interval, one.percent, one.interval
    )
