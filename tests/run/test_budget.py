"""A time budget that is kept: a run changes its number of steps while the machine's speed changes."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frossl
from frossl import engine
from frossl._api.finish import affordable_training, sample_size, train_size
from frossl.config import Config, Optim, Settlement, Train
from frossl.data import ArraySource, Loader, open_dataset
from frossl.engine import budget as budgets
from frossl.engine.budget import Budget, Pacer
from frossl.engine.plan import make_plan
from frossl.errors import ConfigError
from frossl.live.progress import NonBlockingConsole, PlainLines
from frossl.live.run_view import RunView
from frossl.runs import RunFolder
from tests.support.cli import FROSSL
from tests.support.runs import PATIENCE, assert_same, method_config, wait_for, weights

SLEEP = 0.05
"""Seconds that each step of a slowed run takes more than planned."""
BUDGET = 40
"""Seconds of budget of a slowed run."""


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, tuple[Settlement, ...]]:
    """Return a number of planned steps, and settlements that follow from each other."""
    planned = total = draw(st.integers(2, 60))
    step, settlements = 0, []
    for _ in range(draw(st.integers(0, 4))):
        if step + 1 >= total:
            break
        step = draw(st.integers(step + 1, total - 1))
        total = draw(st.integers(step + 1, step + 60))
        settlements.append(Settlement(step, total))
    return planned, tuple(settlements)


def loader(planned: int, settlements: tuple[Settlement, ...] = ()) -> Loader:
    images = ArraySource(torch.zeros(8, 3, 4, 4, dtype=torch.uint8))
    return Loader(images, batch_size=4, epochs=1, steps=planned, settlements=settlements, seed=0)


@given(histories())
def test_schedules_go_on_from_where_they_are_and_end_with_the_run(history):
    """Another route: every step covers an equal share of what is left of the schedule."""
    planned, settlements = history
    made, position, total = loader(planned, settlements), 0.0, planned
    totals = {one.step: one.total for one in settlements}
    for step in range(made.total):
        total = totals.get(step, total)
        clock = made.clock(step)
        assert clock.schedule == (pytest.approx(position, abs=1e-9), planned)
        assert clock.total == total
        position += (planned - position) / (total - step)
        assert made.step_at(clock.schedule[0]) == step
    assert position == pytest.approx(planned)


@given(histories())
def test_a_clock_does_not_depend_on_later_settlements(history):
    planned, settlements = history
    whole = loader(planned, settlements)
    for count in range(len(settlements) + 1):
        part = loader(planned, settlements[:count])
        end = settlements[count].step if count < len(settlements) else whole.total
        assert [part.clock(step) for step in range(end)] == [whole.clock(step) for step in range(end)]


def test_batches_end_with_the_newest_settlement():
    for total in (7, 15):
        made = loader(12)
        steps = []
        for _, clock in made.batches():
            steps.append(clock.step)
            if clock.step == 4:
                made.settlements = (Settlement(5, total),)
        assert steps == list(range(total))


def test_a_clock_without_settlements_is_that_of_before():
    assert loader(9).clock(3).schedule == (3, 9)
    assert isinstance(loader(9).clock(3).schedule[0], int)


def end_of_run(seconds_per_step: Callable[[float], float]) -> float:
    """Return when a run with a budget of 400 s ends on a simulated machine, as a function of its speed."""
    budget, finish, planned = 400.0, 20.0, 1.0
    now, step, total = 0.0, 0, int((budget - finish) / planned)
    clock = budgets.time
    budgets.time = type("Time", (), {"monotonic": staticmethod(lambda: now)})
    try:
        pacer = Pacer(Budget(budget, 0.0), step_seconds=planned, finish_seconds=finish)
        pacer.begin(0)
        while step < total:
            pace = seconds_per_step(now)
            now += pace
            step += 1
            if pacer.asks() and step < total and (settled := pacer.look(step, total)):
                total = settled.total
    finally:
        budgets.time = clock
    return now + finish * pace / planned


@pytest.mark.parametrize(
    ("name", "speed"),
    [
        ("as planned", lambda now: 1.0),
        ("slower from the start", lambda now: 2.0),
        ("slower from half time on", lambda now: 1.0 if now < 200 else 2.0),
        ("much slower from half time on", lambda now: 1.0 if now < 200 else 8.0),
        ("faster from a quarter on", lambda now: 1.0 if now < 100 else 0.5),
        ("slow for a while", lambda now: 3.0 if 100 < now < 200 else 1.0),
        ("a tide", lambda now: 1.0 + 0.4 * math.sin(now / 30)),
    ],
)
def test_a_run_ends_within_a_tenth_of_its_budget(name, speed):
    assert end_of_run(speed) == pytest.approx(400, rel=0.1), name


def test_small_changes_leave_the_number_of_steps():
    pacer = Pacer(Budget(400.0, time.monotonic()), step_seconds=1.0, finish_seconds=20.0)
    pacer.begin(0)
    pacer._looks[0] = (0, time.monotonic() - 100.0)
    assert pacer.look(100, 480) is None
    assert pacer.look(100, 300).total == pytest.approx(480, rel=0.05)
    shortened = Pacer(Budget(400.0, time.monotonic()), step_seconds=1.0, finish_seconds=20.0, most=300)
    shortened.begin(0)
    shortened._looks[0] = (0, time.monotonic() - 100.0)
    assert shortened.look(100, 300) is None


def test_a_stored_pace_is_read_back_and_runs_without_one_keep_their_length():
    budget = Budget(400.0, time.monotonic())
    stored = Pacer(budget, step_seconds=1.0, finish_seconds=20.0, most=7).to_json()
    assert Pacer.from_json(budget, stored).to_json() == stored
    for damaged in (None, {}, [], {**stored, "most": "7"}, {**stored, "step_seconds": math.nan}):
        assert Pacer.from_json(budget, damaged) is None


@pytest.mark.parametrize(
    "given",
    [
        [Settlement(5, 9), Settlement(4, 9)],
        [Settlement(5, 9), Settlement(5, 9)],
        [Settlement(5, 9), Settlement(9, 12)],
        [Settlement(12, 15)],
    ],
)
def test_settlements_that_contradict_each_other_are_refused(given):
    with pytest.raises(ConfigError, match=r"train\.settlements"):
        Train(steps=12, settlements=tuple(given))


def test_settlements_are_written_and_read():
    config = Config(train=Train(steps=12, settlements=(Settlement(5, 9), Settlement(7, 30))))
    assert Config.from_toml(config.to_toml()) == config
    assert config.train.length(5) == 30
    assert config.with_settings({"train.steps": 4}).train == Train(steps=4)
    with pytest.raises(ConfigError, match="more than its step"):
        Config.from_toml("[train]\nsteps = 9\n[[train.settlements]]\nstep = 5\ntotal = 5\n")


def start_slowed(out: Path, *, devices: int = 1) -> subprocess.Popen[str]:
    """Start a process that trains with a time budget, and with steps that are slower than planned."""
    settings = {**asdict(method_config("byol").train), "precision": "32-true", "checkpoint_every": 3}
    config, file = replace(method_config("byol"), train=Train(**settings)), out.with_suffix(".toml")
    file.write_text(config.to_toml())
    code = f"""
import pathlib, time, frossl
frossl.pretrain(
    "cifar10-mini", config=frossl.Config.read(pathlib.Path({str(file)!r})), out={str(out)!r}, quiet=True,
    budget={BUDGET}, devices={devices},
    callbacks=[frossl.Callback(1, lambda ids, tensors, clock: time.sleep({SLEEP}))],
)
"""
    script = out.with_suffix(".py")
    script.write_text(code)
    return subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def settlements(out: Path) -> tuple[Settlement, ...]:
    return Config.read(out / "config.toml").train.settlements


def assert_close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    for name, value in a.items():
        torch.testing.assert_close(value, b[name], msg=name)


def replayed(out: Path) -> None:
    """Run the configuration that a run has written once more, without a budget, and compare the encoders."""
    file, place = out / "config.toml", out.with_name("again")
    command = ["pretrain", "cifar10-mini", "--config", file, "--out", place, "--quiet"]
    done = subprocess.run([*FROSSL, *command], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    config, again = Config.read(file), frossl.Run(place)
    assert again.config.train == config.train
    assert again.status.step == again.status.total == config.train.settlements[-1].total
    assert_same(weights(out), weights(again))


def fitted(
    config: Config, folder: RunFolder, pacer: Pacer | None = None, screen: PlainLines | None = None
) -> engine.State:
    """Train until the end of a run, without what comes before and after."""
    state = engine.build(config, open_dataset("cifar10-mini"))
    state.pacer = pacer
    engine.restore(state, folder)
    engine.fit(state, folder, screen)
    return state


def byol(**values: Any) -> Config:
    config = method_config("byol", device="cpu", precision="32-true", **values)
    return engine.settle(config, open_dataset("cifar10-mini"))


def test_a_run_that_is_slower_than_planned_is_shortened_and_its_configuration_repeats_it(tmp_path):
    folder = RunFolder.create(tmp_path / "live")
    pacer = Pacer(Budget(1.5, time.monotonic()), step_seconds=0.01, finish_seconds=0.01)
    lines = PlainLines(NonBlockingConsole(file=io.StringIO(), width=200), RunView())
    live = fitted(byol(steps=2000), folder, pacer, lines)
    config = Config.read(folder.config_file)
    told = f"slower: to end within the budget, 2000 become {config.train.settlements[0].total}\n"
    assert f"steps have become {told}" in lines.console.file.getvalue()
    assert config == live.config
    assert live.step == config.train.settlements[-1].total < 2000
    again = fitted(config, RunFolder.create(tmp_path / "again"))
    assert again.config == config
    assert_same(live.method.state_dict(), again.method.state_dict())


def test_a_settled_run_resumes_to_the_bit(tmp_path, monkeypatch):
    """One checkpoint lies before the settlements, one between them."""
    config = byol(steps=30, settlements=(Settlement(10, 24), Settlement(20, 26)))
    whole = fitted(config, RunFolder.create(tmp_path / "whole"))
    assert whole.step == 26
    for stop in (5, 15):
        folder = RunFolder.create(tmp_path / str(stop))
        monkeypatch.setenv("FROSSL_MAX_STEPS", str(stop))
        fitted(config, folder)
        monkeypatch.delenv("FROSSL_MAX_STEPS")
        assert folder.read_status().total == 26
        assert_same(whole.method.state_dict(), fitted(config, folder).method.state_dict())


def saved(folder: RunFolder, *, step: int, settlements: tuple[Settlement, ...]) -> None:
    """Write a checkpoint of a step."""
    state = engine.build(byol(steps=30, settlements=settlements), open_dataset("cifar10-mini"))
    state.step = step
    engine.save(state, folder)


def test_settlements_that_a_checkpoint_has_not_reached_are_made_anew(tmp_path):
    """A kill after config.toml was written: the step that it names is done once more, at another speed."""
    passed, ahead = Settlement(4, 20), Settlement(10, 25)
    config, folder = byol(steps=30, settlements=(passed, ahead)), RunFolder.create(tmp_path / "run")
    saved(folder, step=7, settlements=(passed,))
    pacer = Pacer(Budget(500, time.monotonic()), step_seconds=1, finish_seconds=1)
    for pace, known in ((pacer, ()), (None, (passed, ahead))):  # before the first checkpoint
        state = engine.build(config, open_dataset("cifar10-mini"))
        state.pacer = pace
        engine.restore(state, RunFolder.create(tmp_path / f"empty {bool(pace)}"))
        assert state.loader.settlements == state.config.train.settlements == known
    state = engine.build(config, open_dataset("cifar10-mini"))
    state.pacer = pacer
    engine.restore(state, folder)
    assert state.loader.settlements == state.config.train.settlements == (passed,)
    state.settle([passed, Settlement(8, 12)])
    assert state.loader.total == 12


def test_a_settled_run_takes_a_new_end_in_epochs(tmp_path):
    """Schedules then follow the new length alone."""
    config = method_config("frossl", steps=6, settlements=(Settlement(2, 4),))
    run = frossl.pretrain("cifar10-mini", config=config, out=tmp_path / "run", quiet=True)
    assert (run.status["step"], run.status["total"]) == (4, 4)
    per_epoch = Loader(
        open_dataset("cifar10-mini").train.source, batch_size=82, epochs=1, seed=0
    ).steps_per_epoch
    again = frossl.resume(run.path, epochs=1, quiet=True)
    assert again.status["step"] == again.status["total"] == per_epoch > 6
    assert (again.config.train.steps, again.config.train.settlements) == (None, ())


def test_a_plan_of_a_settled_configuration_counts_and_times_its_steps():
    data = open_dataset("cifar10-mini")
    config = engine.settle(method_config("frossl", steps=6, settlements=(Settlement(2, 4),)), data)
    method = engine.build_method(config)
    assert make_plan(config, data, method=method).steps == 4
    assert engine.time_steps(config, data, None, None, seconds=0.0, method=method).step_seconds > 0


def test_temperatures_and_averages_follow_the_position_in_the_schedules():
    """A clock whose position is p of n gives what the clock of step p of n gives."""
    made = loader(40, (Settlement(8, 16),))
    moved = made.clock(12)
    position, planned = moved.schedule
    assert position == pytest.approx(24)
    for name in ("dino", "byol", "swav"):
        config = method_config(name, device="cpu", precision="32-true")
        seen = []
        for clock in (moved, replace(moved, step=24, total=planned, place=None)):
            method = engine.build_method(engine.settle(config, open_dataset("cifar10-mini")))
            for parameter in method.parameters():
                parameter.grad = torch.ones_like(parameter)
                parameter.data += 1
            method.before_update(clock)
            method.after_update({"newest": getattr(method, "queue", torch.zeros(1, 2))[:, :2]}, clock)
            given = {"target": torch.zeros(2, 4, 16), "z": torch.zeros(2, 4, 16)}
            frozen = {key: torch.tensor(p.grad is None) for key, p in method.named_parameters()}
            temperature = method.inputs(given, clock).get("target_temperature", 0.0)
            seen.append((method.state_dict(), frozen, temperature))
        assert_close(seen[0][0], seen[1][0])
        assert_same(seen[0][1], seen[1][1])
        assert seen[0][2] == pytest.approx(seen[1][2])


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_the_learning_rate_goes_on_from_where_it_is(schedule):
    config = replace(byol(steps=100), optim=Optim(schedule=schedule, warmup=0.1))
    state = engine.build(config, open_dataset("cifar10-mini"))
    before = [state.lr(state.loader.clock(step)) for step in range(100)]
    state.settle([Settlement(5, 40), Settlement(30, 90)])
    after = [state.lr(state.loader.clock(step)) for step in range(90)]
    assert after[:6] == before[:6]
    assert after[6] > before[6]  # still warming up, in larger steps
    largest = max(abs(a - b) for a, b in pairwise(before))
    assert max(abs(a - b) for a, b in pairwise(after)) < 3 * largest
    assert after[-1] < 0.1 * max(after)


@pytest.mark.slow
def test_a_killed_run_goes_on_within_its_budget_and_its_configuration_repeats_it(tmp_path):
    out = tmp_path / "run"
    process, began = start_slowed(out), time.monotonic()
    folder = RunFolder(out)
    wait_for(process, lambda: folder.config_file.is_file() and bool(settlements(out)))
    wait_for(process, lambda: len(folder.checkpoint_files()) > 1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    done = subprocess.run([*FROSSL, "resume", out], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 2 * BUDGET
    replayed(out)


@pytest.mark.slow
def test_two_processes_agree_on_settlements(tmp_path):
    process = start_slowed(tmp_path / "run", devices=2)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    replayed(tmp_path / "run")


def test_a_budget_is_counted_on_after_a_stop(tmp_path):
    """What was spent before is in the checkpoint; the time until the run is resumed is not."""
    folder, pacers = RunFolder.create(tmp_path / "run"), []
    for began in (time.monotonic() - 100, time.monotonic() + 1000):
        state = engine.build(byol(steps=4), open_dataset("cifar10-mini"))
        state.pacer = Pacer(Budget(500, began), step_seconds=1, finish_seconds=1)
        engine.restore(state, folder)
        engine.save(state, folder)
        pacers.append(state.pacer)
    assert pacers[1].budget.began == pytest.approx(pacers[0].budget.began + 1000, abs=20)


def test_the_closing_evaluation_fits_its_share():
    data = open_dataset("cifar10-mini")
    encoder = engine.build(byol(), data).encoder
    assert affordable_training(300.0, 1e6, data, encoder) == 300
    least = affordable_training(300.0, 0.0, data, encoder)
    assert (train_size(least), sample_size(least)) == (train_size(0.0), sample_size(0.0))
    assert least < affordable_training(300.0, 5.0, data, encoder) < 300
