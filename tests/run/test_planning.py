"""What a run will take, before it begins; and a run that ends in time."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from frossl import engine
from frossl.config import Config, Diagnostics, Network, Train, ViewSpec
from frossl.data import ArraySource, Dataset, Labels, Split
from frossl.engine.budget import Budget, budget_seconds
from frossl.engine.plan import in_words, make_plan
from frossl.errors import InputError
from frossl.runs import RunFolder
from tests.support import ROOT
from tests.support.cli import call
from tests.support.runs import USUAL, read_lines

SMALL = Config(
    network=Network("resnet18", width=0.125, projector_hidden=16, projector_out=8),
    train=Train(epochs=3, batch_size=8, device="cpu"),
    views=(ViewSpec(size=16, count=2, **USUAL),),
)


def images(count: int = 40, *, size: int = 16) -> Dataset:
    pixels = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)
    labels = Labels(torch.arange(count) % 4, ("a", "b", "c", "d"))
    return Dataset("noise", Split(ArraySource(pixels), labels), None, ((0.5,) * 3, (0.2,) * 3))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1m5s", 65), (12.5, 12.5)],
)
def test_budgets_are_read(text, seconds):
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "30 minutes", "-3m", "0s", "m30", 0.0, math.inf, math.nan])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="90s, 30m"):
        budget_seconds(text)


def test_times_in_words():
    assert [in_words(s) for s in (4, 89, 100, 1800, 7200, 400_000)] == [
        "4 s", "89 s", "1.7 min", "30 min", "2.0 h", "4.6 days",
    ]  # fmt: skip


def test_a_plan_counts_what_the_run_then_has():
    data = images()
    config = engine.settle(SMALL, data)
    plan = make_plan(config, data, measure=True, finish_seconds=lambda *given: 2.0)
    state = engine.build(config, data)
    assert (plan.steps, plan.steps_per_epoch) == (state.loader.total, state.loader.steps_per_epoch) == (15, 5)
    assert plan.parameters == sum(p.numel() for p in state.method.encoder.parameters())
    assert plan.to_json()["lr"] == pytest.approx(state.optimizer.param_groups[0]["lr"])
    assert plan.seconds == pytest.approx(plan.steps * plan.timing.step_seconds + 2.0)
    assert json.dumps(plan.to_json())


def test_planning_writes_nothing_and_changes_no_random_number(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before, state = sorted(tmp_path.rglob("*")), torch.random.get_rng_state()
    code, out, err = call(monkeypatch, capsys, "pretrain", photos, "--dry-run", "--json", "--width", "0.25")
    assert code == 0, err
    told = json.loads(out)
    assert (told["images"], told["classes"], told["device"]) == (12, 0, "cpu")
    assert told["seconds"] > 0
    for words in ("12 images", "no labels", "2 × ", "ms a step", "GB that are free"):
        assert words in err
    assert sorted(tmp_path.rglob("*")) == before
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_trial_leaves_the_run_as_it_is(tmp_path):
    """Timing the first steps must not change the weights that come of them."""
    runs, data = [], images(24)
    quiet = replace(SMALL, diagnostics=Diagnostics(probe=False, knn=False))
    for name, budget in (("plain", None), ("timed", 20)):
        config = engine.settle(quiet, data)
        within = None if budget is None else Budget(budget, time.monotonic())
        made = make_plan(config, data, budget=within)
        fixed = replace(made.config, train=replace(made.config.train, steps=6, epochs=2))
        folder = RunFolder.create(tmp_path / name)
        state = engine.build(fixed, data)
        engine.fit(state, folder)
        runs.append(state.method.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(run.values() for run in runs), strict=True))


def test_a_budget_becomes_steps_that_fill_it(monkeypatch):
    timing = engine.StepTiming(step_seconds=0.1, image_seconds=0.001)
    monkeypatch.setattr(engine, "time_steps", lambda *args, **options: timing)
    data = images()
    config = engine.settle(replace(SMALL, diagnostics=Diagnostics(share=0.0)), data)
    plan = make_plan(config, data, budget=Budget(1000, time.monotonic()))
    assert plan.config.train.steps == plan.steps
    assert plan.config.train.epochs == math.ceil(plan.steps / plan.steps_per_epoch)
    assert plan.seconds <= 1000
    assert plan.steps == pytest.approx(10_000, rel=0.1)  # less what building the plan took
    more = make_plan(config, data, budget=Budget(2000, time.monotonic()))
    assert more.steps == pytest.approx(20_000, rel=0.1)
    shortened = make_plan(config, data, budget=Budget(1000, time.monotonic(), only_shortens=True))
    assert (
        shortened.steps == shortened.config.train.steps == shortened.pacer(Budget(1000, 0.0, True)).most == 15
    )


def test_a_budget_gives_a_run_whose_schedule_ends_with_it(tmp_path, monkeypatch, capsys):
    code, out, err = call(
        monkeypatch, capsys, "pretrain", "cifar10-mini", "--recipe", "demo", "--width", "0.125",
        "--budget", "15s", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    config = Config.read(tmp_path / "run" / "config.toml")
    assert result["state"] == "finished"
    assert result["step"] == result["total"] == config.train.length(0)
    last = read_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["lr"] < 0.1 * config.optim.lr(config.train.batch_size)  # a late change leaves few steps
    assert set(result["evaluation"][-1]["percent"]) == {"pixels", "colors", "untrained", "trained"}
    assert (tmp_path / "run" / "report.html").stat().st_size < 8e6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon"], "no time; give such as 90s"),
        (["--budget", "1s"], "give at least"),
        (["--budget", "5m", "--epochs", "3"], "give one of them"),
        (["--set", "train.epoch=3"], "did you mean train.epochs"),
        (["--precision", "16"], "32-true"),
        (["--labels", "nothing.csv"], "there is no file"),
        (["--test", "nowhere/at all"], "there is no folder"),
    ],
)
def test_what_cannot_be_planned_is_refused_before_anything_is_written(
    arguments, words, photos, tmp_path, monkeypatch, capsys
):
    code, _, err = call(monkeypatch, capsys, "pretrain", photos, "--out", tmp_path / "run", *arguments)
    assert (code, err.count("\n")) == (2, 1), err
    assert words in err
    assert not (tmp_path / "run").exists()


def test_a_batch_that_memory_does_not_hold_is_answered_with_the_one_that_it_does(monkeypatch):
    data = images(512)
    config = engine.settle(replace(SMALL, train=replace(SMALL.train, batch_size=512)), data)
    needed = make_plan(config, data).memory_bytes
    monkeypatch.setattr(engine, "free_memory", lambda device: needed - 1)
    with pytest.raises(InputError, match=r"512 images at once .* --micro-batch-size 256 ") as refused:
        make_plan(config, data)
    size = int(str(refused.value).split("--micro-batch-size ")[1].split()[0])
    smaller = replace(config, train=replace(config.train, micro_batch_size=size))
    assert make_plan(smaller, data).memory_bytes < needed
    monkeypatch.setattr(engine, "free_memory", lambda device: 1000)
    with pytest.raises(InputError, match="smaller backbone"):
        make_plan(config, data)


def test_memory_of_an_image_is_what_its_views_leave_in_the_graph():
    """Twice the views or twice the pixels take twice the memory; the loss grows apart from it."""
    data = images()

    def an_image(**view: int) -> int:
        views = (ViewSpec(**view, **USUAL),)
        config = replace(SMALL, network=replace(SMALL.network, stem="native"), views=views)
        config = engine.settle(config, data)
        return engine.estimate_memory(config, engine.build_method(config), 8).an_image

    once = an_image(size=64, count=2)
    assert an_image(size=64, count=4) == pytest.approx(2 * once, rel=0.01)
    assert an_image(size=128, count=2) == pytest.approx(4 * once, rel=0.05)


@pytest.mark.slow
def test_memory_is_expected_within_a_third_of_what_it_then_takes():
    command = [sys.executable, "-m", "benchmarks.memory", "--batch", "192", "--size", "64", "--parts", "1,3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    for row in json.loads(done.stdout.splitlines()[-1])["rows"]:
        assert row["expected_mb"] == pytest.approx(row["above_mb"], rel=0.33), row
