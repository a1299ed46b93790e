"""Spectra and comparisons, from run folders that are written by hand: what is known is what must come out."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import t

from frossl.config import Config, Optim, Train
from frossl.errors import InputError
from frossl.reporting import compare_runs, draw_comparison, draw_spectra, trajectory
from frossl.runs import RunFolder

CONFIG = Config(train=Train(batch_size=100))
STEPS = sorted({round(10 ** (i / 20)) for i in range(66)})


def write_run(
    path: Path,
    *,
    config: Config = CONFIG,
    seed: int = 0,
    percent: float | None = None,
    images: int = 1000,
    online=(),
    spectrum=None,
    seconds_a_step: float = 0.5,
) -> Path:
    folder = RunFolder.create(path)
    folder.write_text("config.toml", replace(config, train=replace(config.train, seed=seed)).to_toml())
    folder.write_json("provenance.json", {"images": 5000})
    for step in range(10, 501, 10):
        record = {"step": step, "seconds": seconds_a_step * step, "images_per_second": 100 / seconds_a_step}
        folder.metrics.append({**record, "memory_gb": 1.5})
    for step, accuracy in online:
        record = {"step": step, "seconds": seconds_a_step * step, "knn": accuracy, "tested": images}
        folder.diagnostics.append(record)
    for step in STEPS if spectrum else ():
        folder.diagnostics.append({"step": step, "z_eigenvalues": spectrum(step)})
    folder.write_status("finished", step=500, total=500)
    if percent is not None:
        half = 196 * math.sqrt(percent / 100 * (1 - percent / 100) / images)
        folder.evaluation.append(
            {
                "step": 500,
                "protocol": "kNN, k 20",
                "percent": {"trained": percent},
                "interval": {"trained": [percent - half, percent + half]},
            }
        )
    return path


def eigenvalues(peak: float, *, noise: float = 0.0, condition: float = 50.0):
    """λ₂₀ rises from nearly zero to a top at step `peak` and falls after it, with a known λ₁ / λ₂₀."""
    random = np.random.default_rng(0)

    def values(step: int) -> list[float]:
        last = 1e-3 + math.exp(-(math.log(step / peak) ** 2)) * math.exp(noise * random.normal())
        return np.geomspace(condition * last, last, 20).tolist()

    return values


@pytest.mark.parametrize("peak", [20, 150, 800])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_saturation_step_is_where_the_last_eigenvalue_has_its_first_top(tmp_path, peak, noise):
    one = trajectory(write_run(tmp_path / "a", spectrum=eigenvalues(peak, noise=noise)))
    assert one.saturation == pytest.approx(peak, rel=0.35)
    assert one.condition == pytest.approx(50)


def test_what_never_falls_or_never_rises_has_not_saturated(tmp_path):
    rising = write_run(tmp_path / "a", spectrum=lambda t: np.geomspace(2 * t, t, 20).tolist())
    level = write_run(tmp_path / "b", spectrum=lambda t: [2.0] * 19 + [1.0 + 0.01 * (t % 3)])
    falling = write_run(tmp_path / "c", spectrum=lambda t: np.geomspace(2 / t, 1 / t, 20).tolist())
    assert [trajectory(run).saturation for run in (rising, level, falling)] == [None, None, None]


def test_a_change_of_scale_alone_is_seen_by_eigenvalues_and_not_by_their_shares(tmp_path):
    run = write_run(tmp_path / "a", spectrum=lambda t: [50 * x for x in eigenvalues(40)(t)])
    same = write_run(tmp_path / "b", spectrum=lambda t: np.geomspace(2 * t, t, 20).tolist())
    shares = [trajectory(path, relative=True) for path in (run, same)]
    assert all(sum(row) == pytest.approx(1) for one in shares for row in one.eigenvalues)
    assert shares[1].eigenvalues[0] == pytest.approx(shares[1].eigenvalues[-1])
    assert trajectory(run).saturation is not None
    assert shares[1].saturation is None


def test_a_run_without_spectra_is_named(tmp_path):
    with pytest.raises(InputError, match="has no spectra"):
        trajectory(write_run(tmp_path / "a"))


def test_spectra_are_drawn_as_png_and_svg_with_a_panel_for_each(tmp_path):
    runs = [trajectory(write_run(tmp_path / name, spectrum=eigenvalues(99))) for name in "abcd"]
    png, svg = draw_spectra(runs, tmp_path / "out.png")
    with Image.open(png) as image:
        assert image.size[0] > 1200
        assert len(set(image.convert("RGB").resize((200, 100)).get_flattened_data())) > 30
    texts = ET.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}g")
    assert sum(group.get("id", "").startswith("axes_") for group in texts) == 6  # two of them empty
    first = svg.read_bytes()
    draw_spectra(runs, tmp_path / "out.svg")
    assert svg.read_bytes() == first


def test_a_picture_that_cannot_be_written_is_refused(tmp_path):
    one = [trajectory(write_run(tmp_path / "a", spectrum=eigenvalues(99)))]
    with pytest.raises(InputError, match="neither"):
        draw_spectra(one, tmp_path / "out.gif")
    with pytest.raises(InputError, match="there is no folder"):
        draw_spectra(one, tmp_path / "nowhere" / "out.png")


FAST = replace(CONFIG, optim=Optim(base_lr=0.01))


def test_a_difference_beyond_twice_its_error_is_told(tmp_path):
    found = compare_runs(
        [write_run(tmp_path / "a", percent=40.0), write_run(tmp_path / "b", config=FAST, percent=50.0)]
    )
    assert [arm.name for arm in found.arms] == ["b", "a"]
    (pair,) = found.pairs
    expected = 100 * math.sqrt(0.4 * 0.6 / 1000 + 0.5 * 0.5 / 1000)
    assert (pair.difference, pair.error) == (pytest.approx(10), pytest.approx(expected))
    assert pair.separated
    assert found.verdict() == "b is ahead of all others by more than twice the error"


def test_what_noise_does_not_separate_is_not_ranked(tmp_path):
    runs = [write_run(tmp_path / "a", percent=47.0), write_run(tmp_path / "b", config=FAST, percent=49.0)]
    assert compare_runs(runs).verdict().startswith("no ranking")
    third = write_run(tmp_path / "c", config=replace(CONFIG, optim=Optim(base_lr=1.0)), percent=20.0)
    said = compare_runs([*runs, third]).verdict()
    assert said == "no first place: b, a differ by less than twice the error"


def test_seeds_are_one_arm_and_their_spread_counts(tmp_path):
    """By counting alone 40 and 47 would be apart; the seeds say that they are not."""
    steady = [
        write_run(tmp_path / f"steady-{seed}", seed=seed, percent=p, images=100_000)
        for seed, p in enumerate((40.0, 46.0, 52.0))
    ]
    other = [
        write_run(tmp_path / f"other-{seed}", config=FAST, seed=seed, percent=p, images=100_000)
        for seed, p in enumerate((44.0, 47.0, 50.0))
    ]
    found = compare_runs([*steady, *other])
    assert {arm.name: len(arm.runs) for arm in found.arms} == {"steady": 3, "other": 3}
    (pair,) = found.pairs
    students = t.ppf(0.975, 2) / 2  # of three seeds
    assert pair.error == pytest.approx(students * math.hypot(6, 3) / math.sqrt(3), rel=1e-3)
    assert not pair.separated


def test_epochs_and_time_to_a_target_are_those_of_the_first_online_accuracy_that_reaches_it(tmp_path):
    slow = write_run(tmp_path / "a", percent=40.0, online=[(100, 20.0), (300, 31.0), (500, 40.0)])
    fast = write_run(
        tmp_path / "b",
        config=FAST,
        percent=41.0,
        online=[(100, 30.5), (500, 41.0)],
        seconds_a_step=2.0,
    )
    found = compare_runs([slow, fast], target=30.0)
    rows = {row["name"]: row for row in found.to_json()["arms"]}
    assert rows["a"]["reached"] == {"epochs": 6.0, "seconds": 150.0}
    assert rows["b"]["reached"] == {"epochs": 2.0, "seconds": 200.0}
    assert (rows["a"]["step_ms"], rows["b"]["step_ms"]) == (500, 2000)
    assert rows["a"]["memory_gb"] == 1.5
    assert compare_runs([slow, fast], target=40.5).arms[1].reached(40.5) is None
    assert compare_runs([slow, fast]).target == 36.0
    json.dumps(found.to_json())
    png, svg = draw_comparison(found, tmp_path / "picture")
    assert png.stat().st_size > 10_000
    assert svg.stat().st_size > 5_000


def test_runs_without_a_common_measure_are_refused_and_online_ones_are_taken(tmp_path):
    known, unknown = write_run(tmp_path / "a", percent=40.0), write_run(tmp_path / "b", config=FAST)
    with pytest.raises(InputError, match="no accuracy in common"):
        compare_runs([known, unknown])
    with pytest.raises(InputError, match="given twice"):
        compare_runs([known, known])
    online = [
        write_run(tmp_path / name, config=config, online=[(500, p)])
        for name, config, p in (("c", CONFIG, 30.0), ("d", FAST, 40.0))
    ]
    found = compare_runs(online)
    assert found.protocol == "online kNN, the last"
    counting = 100 * math.sqrt(0.3 * 0.7 / 1000 + 0.4 * 0.6 / 1000)
    assert found.pairs[0].error == pytest.approx(counting, rel=0.01)  # Wilson's is not quite the same


def test_figures_of_an_earlier_checkpoint_are_not_compared(tmp_path):
    runs = [
        write_run(tmp_path / "a", percent=40.0),
        write_run(tmp_path / "b", config=FAST, percent=50.0),
    ]
    early = {
        "step": 100,
        "protocol": "kNN, k 20",
        "percent": {"trained": 1.0},
        "interval": {"trained": [0, 2]},
    }
    RunFolder(runs[0]).evaluation.append(early)
    assert compare_runs(runs).arms[1].percent == 40.0


def test_runs_of_one_name_in_two_places_keep_apart(tmp_path):
    for place in "xy":
        (tmp_path / place).mkdir()
    runs = [
        write_run(tmp_path / "x" / "run", percent=40.0),
        write_run(tmp_path / "y" / "run", config=FAST, percent=50.0),
    ]
    assert [arm.name for arm in compare_runs(runs).arms] == [str(runs[1]), str(runs[0])]
