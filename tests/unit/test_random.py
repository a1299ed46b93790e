"""The counter-based random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from frossl.augment.random import mix, uniforms

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
DRAWS = 42


def mix_by_hand(x: int) -> int:
    """SplitMix64's finalizer on Python's unbounded integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def test_mixing_equals_splitmix64_on_unbounded_integers():
    values = [0, 1, 2, 12345, (1 << 63) - 1, 1 << 63, MASK, 0x9E3779B97F4A7C15]
    signed = torch.tensor([v - (1 << 64) if v >= 1 << 63 else v for v in values])
    assert [int(x) & MASK for x in mix(signed)] == [mix_by_hand(v) for v in values]


def test_first_output_of_splitmix64_with_seed_zero_is_the_published_one():
    assert mix_by_hand(GOLDEN) == 0xE220A8397B1DCDAF


def draw(seed=0, epoch=0, ids=(0,), views=(0,), count=DRAWS):
    ids, views = torch.tensor(ids), torch.tensor(views)
    return uniforms(seed=seed, epoch=epoch, ids=ids, views=views, count=count)


def draw_by_hand(seed: int, epoch: int, id: int, view: int, index: int) -> float:
    key = seed
    for counter in (epoch, id, view):
        key = mix_by_hand((key * GOLDEN + GOLDEN) & MASK) ^ counter
    key = mix_by_hand((key * GOLDEN + GOLDEN) & MASK)
    return (mix_by_hand((key + index * GOLDEN) & MASK) >> 40) / (1 << 24)


@pytest.mark.parametrize("count", [1, 42, 100])
def test_numbers_equal_the_hash_on_unbounded_integers_for_any_count(count):
    """However many numbers later operations append, those before them stay."""
    seed, epoch, ids, views = 2**31 - 1, 7, (0, 12, 1 << 40), (0, 3)
    expected = [[[draw_by_hand(seed, epoch, i, v, k) for k in range(count)] for i in ids] for v in views]
    assert draw(seed, epoch, ids, views, count).tolist() == expected


def test_numbers_do_not_depend_on_the_company_they_are_drawn_in():
    together = draw(seed=3, epoch=7, ids=(4, 9, 2), views=(0, 1, 5))
    for v, view in enumerate((0, 1, 5)):
        for n, image in enumerate((4, 9, 2)):
            assert torch.equal(together[v, n], draw(3, 7, (image,), (view,))[0, 0])


def test_every_coordinate_matters():
    seen = {
        tuple(draw(s, e, (i,), (v,))[0, 0, :2].tolist())
        for s in range(6)
        for e in range(6)
        for i in range(6)
        for v in range(6)
    }
    assert len(seen) == 6**4


def test_numbers_are_uniform_and_independent():
    u = draw(ids=range(5000), views=(0, 1)).numpy()
    assert u.shape == (2, 5000, DRAWS)
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u[0, :, 0], "uniform").pvalue > 1e-3
    assert stats.kstest(u.ravel()[:: DRAWS + 1], "uniform").pvalue > 1e-3
    columns = np.concatenate([u[0], u[1]], axis=1)
    correlation = np.corrcoef(columns, rowvar=False) - np.eye(2 * DRAWS)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(5000)


def test_seeds_that_differ_in_one_bit_give_unrelated_numbers():
    streams = np.stack([draw(seed, ids=range(2000))[0, :, 0].numpy() for seed in (0, 1, 2, 1 << 30, 1 << 40)])
    assert np.abs(np.corrcoef(streams) - np.eye(5)).max() < 5 / np.sqrt(2000)
