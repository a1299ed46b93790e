"""Verdicts on synthetic trajectories of each kind; real ones are in tests/run/test_diagnosing.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from frossl.diagnostics import judge, log_spaced


def looks(
    until: int = 2000,
    *,
    loss=lambda t: -4 * (1 - math.exp(-t / 900)),
    rank=lambda t: 8 + 40 * (1 - math.exp(-t / 900)),
    spread=lambda t: 0.7,
    weights=lambda t: 60 + t / 500,
    noise: float = 0.02,
    seed: int = 0,
) -> list[dict]:
    """What a run records at its log-spaced and regular steps; noise relative to each number."""
    random = np.random.default_rng(seed)
    steps = [step for step in range(1, until + 1) if log_spaced(step) or step % 50 == 0]

    def noisy(value: float, scale: float) -> float:
        return value + noise * scale * random.normal()

    return [
        {
            "step": step,
            "mean_loss": noisy(loss(step), 2.0),
            "z_rank": noisy(rank(step), rank(step)),
            "features_rank": noisy(12.0, 12.0),
            "z_spread": spread(step),
            "directions": 127,
            "alignment": noisy(0.7, 0.7),
            "uniformity": noisy(-2.0, 2.0),
            "weight_norm": weights(step),
        }
        for step in steps
    ]


def kinds(records: list[dict], warmup: int = 0) -> list[str]:
    """The verdicts as the run went."""
    return [judge(records[: i + 1], warmup=warmup).kind for i in range(len(records))]


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_learns_warms_up_and_then_learns(seed):
    seen = kinds(looks(seed=seed))
    assert set(seen) == {"warming up", "learning"}
    assert seen.index("learning") > 15
    assert seen == sorted(seen, key=["warming up", "learning"].index)


def test_the_reason_names_what_moves_and_by_how_much():
    verdict = judge(looks())
    assert "the loss falls, from -2." in verdict.reason
    assert str(verdict) == f"learning: {verdict.reason}"
    only_rank = judge(looks(loss=lambda t: 2.0, rank=lambda t: 5 + t / 100))
    assert "the rank of the projections rises, from 1" in only_rank.reason


def test_the_rates_own_warm_up_counts():
    assert judge(looks(200), warmup=300).kind == "warming up"
    assert judge(looks(400), warmup=300).kind == "learning"
    assert judge([]).kind == "warming up"


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_has_arrived_is_saturated(seed):
    def early(top):
        return lambda t: top * (1 - math.exp(-t / 60))

    records = looks(4000, loss=early(-4), rank=lambda t: 8 + early(40)(t), seed=seed)
    seen = kinds(records)
    assert set(seen) <= {"warming up", "learning", "saturated"}
    assert "saturated" in seen
    assert "stalled" not in seen
    assert judge(records).kind in ("saturated", "learning")  # a slope by chance, once in a while
    # once arrived, at least nine in ten looks say so
    late = [kind for record, kind in zip(records, seen, strict=True) if record["step"] > 2000]
    assert late.count("saturated") >= 0.9 * len(late)


def test_saturated_says_what_to_expect():
    records = looks(4000, loss=lambda t: -4 * (1 - math.exp(-t / 60)), rank=lambda t: 40.0)
    verdict = judge(records)
    assert verdict.kind == "saturated"
    assert "less than 5%" in verdict.reason
    assert "little" in verdict.advice


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_never_moved_is_stalled(seed):
    records = looks(1500, loss=lambda t: 3.0, rank=lambda t: 9.0, seed=seed)
    seen = kinds(records)
    assert "saturated" not in seen
    assert judge(records).kind in ("stalled", "learning")
    late = [kind for record, kind in zip(records, seen, strict=True) if record["step"] > 500]
    assert late.count("stalled") >= 0.8 * len(late)


def test_stalled_advises_a_higher_rate():
    verdict = judge(looks(1500, loss=lambda t: 3.0, rank=lambda t: 9.0))
    assert (verdict.kind, verdict.bad) == ("stalled", False)
    assert "ten times higher" in verdict.advice


@pytest.mark.parametrize("seed", range(10))
def test_a_rank_that_falls_to_one_is_a_dimensional_collapse(seed):
    records = looks(400, rank=lambda t: 1 + 8 * math.exp(-t / 8), seed=seed)
    verdict = judge(records)
    assert (verdict.kind, verdict.stop) == ("collapsing", False)
    assert verdict.reason.startswith("dimensionally")
    first = kinds(records).index("collapsing")
    assert records[first]["step"] < 50


def test_a_rank_that_falls_to_a_tenth_of_its_peak_is_one_too():
    records = looks(3000, rank=lambda t: 80 if t < 1500 else 6)
    assert judge(records).kind == "collapsing"
    assert judge([look for look in records if look["step"] < 1500]).kind == "learning"


def test_a_low_rank_that_stays_is_no_collapse():
    """Methods that only attract live with a few directions, and learn: SimSiam falls to a quarter."""
    assert "collapsing" not in kinds(looks(2000, rank=lambda t: 3.2 + 10 * math.exp(-t / 6)))


def test_one_low_look_is_no_collapse():
    records = looks(600)
    records[-1]["z_rank"] = 1.0
    assert judge(records).kind == "learning"


def test_a_batch_that_has_no_more_than_a_few_directions_is_not_collapsing():
    records = [{**look, "directions": 1} for look in looks(100, rank=lambda t: 1.0)]
    assert "collapsing" not in kinds(records)


def test_a_network_that_begins_near_one_point_has_its_chance():
    """Untrained projections may be nearly parallel; what leaves that point learns, what stays does not."""
    leaving = looks(600, spread=lambda t: 0.02 + 0.5 * (1 - math.exp(-t / 100)))
    assert "collapsing" not in kinds(leaving)
    staying = looks(600, spread=lambda t: 0.02)
    first = kinds(staying).index("collapsing")
    assert 200 < staying[first]["step"] < 260


def test_a_loss_that_rises_is_no_learning_by_itself():
    verdict = judge(looks(2000, loss=lambda t: t / 500, rank=lambda t: 20.0))
    assert "the loss" not in verdict.reason


def test_all_images_in_one_point_is_a_complete_collapse_that_stops():
    verdict = judge(looks(300, spread=lambda t: math.exp(-t / 30)))
    assert (verdict.kind, verdict.stop, verdict.bad) == ("collapsing", True, True)
    assert verdict.reason.startswith("completely")
    assert verdict.advice


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"weights": lambda t: 60 * 1.2**t}, "times as long as at first"),
        ({"loss": lambda t: math.inf}, "loss"),
    ],
)
def test_growing_weights_and_a_loss_that_is_not_finite_are_divergence(change, reason):
    verdict = judge(looks(100, **change))
    assert (verdict.kind, verdict.stop) == ("diverging", False)
    assert reason in verdict.reason
    assert "lower rate" in verdict.advice


def asked(*gains: float, width: float = 4.0) -> list[dict]:
    """Online neighbours that began with 60%."""
    return [
        {"knn": 60 + gain, "knn_gain": gain, "knn_gain_low": gain - width, "knn_gain_high": gain + width}
        for gain in gains
    ]


def test_neighbours_below_the_start_three_times_in_a_row_are_forgetting():
    verdict = judge(looks(), asked=asked(1.0, -9.0, -10.0, -11.5))
    assert (verdict.kind, verdict.bad, verdict.stop) == ("forgetting", False, False)
    assert "48.5%" in verdict.reason
    assert "60.0%" in verdict.reason
    assert "(-11.5 points, 95% interval -15.5 to -7.5)" in verdict.reason
    assert "--lr" in verdict.advice


@pytest.mark.parametrize(
    "gains",
    [
        (-9.0, -9.0),  # twice
        (-9.0, -9.0, -9.0, -3.0),  # the last one within the error
        (-9.0, -9.0, -3.0, -9.0, -9.0),  # not in a row
        (),
    ],
)
def test_fewer_or_uncertain_losses_are_no_forgetting(gains):
    assert judge(looks(), asked=asked(*gains)).kind == "learning"


def test_a_collapse_is_worse_than_forgetting():
    flat = looks(400, rank=lambda t: 1 + 8 * math.exp(-t / 8))
    assert judge(flat, asked=asked(-9.0, -9.0, -9.0)).kind == "collapsing"


def test_forgetting_is_told_before_the_warm_up_is_over():
    assert judge(looks(20), asked=asked(-9.0, -9.0, -9.0)).kind == "forgetting"


def test_log_spaced_steps_are_twenty_a_decade():
    chosen = [step for step in range(1, 100_001) if log_spaced(step)]
    assert chosen[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13]
    for low in (1_000, 10_000):
        assert len([step for step in chosen if low <= step < 10 * low]) == 20
    gaps = np.diff(np.log10(chosen[-40:]))
    np.testing.assert_allclose(gaps, 0.05, atol=0.001)
