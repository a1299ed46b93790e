"""Runs that are killed, stopped, starved and poisoned go on as if nothing had happened."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import frossl
from frossl import engine
from frossl.config import Optim
from frossl.data import open_dataset
from frossl.engine import State
from frossl.engine.guard import Guard
from frossl.engine.step import train_step
from frossl.errors import BadStepError, InputError, TrainingError
from frossl.methods import METHODS
from tests.support.cli import FROSSL
from tests.support.runs import (
    PATIENCE,
    SMALL,
    assert_same,
    method_config,
    start,
    steps_of,
    train,
    wait_for,
    weights,
)

QUICK = ("frossl", "dino")
STEPS = 60


def methods(*quick: str):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]


@pytest.mark.parametrize("name", methods(*QUICK))
def test_a_run_killed_at_any_step_ends_with_the_same_bits(name, tmp_path):
    whole = train(tmp_path / "whole", config=method_config(name))
    assert whole.status["total"] == STEPS
    at = random.randrange(2, STEPS - 10)
    killed = start(method_config(name), tmp_path / "killed")
    wait_for(killed, lambda: steps_of(tmp_path / "killed") >= at)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    resumed = frossl.resume(tmp_path / "killed", quiet=True)
    assert resumed.status["state"] == "finished"
    assert_same(weights(whole), weights(resumed))
    assert [r["step"] for r in resumed.metrics] == list(range(1, STEPS + 1))


@pytest.mark.slow
def test_a_run_killed_while_it_writes_a_checkpoint_has_the_one_before(tmp_path):
    wide = replace(SMALL.network, projector_hidden=2048, projector_out=1024, projector_layers=3)
    given = replace(
        method_config("frossl", checkpoint_every=2), network=wide
    )  # large enough to be caught at it
    checkpoints = tmp_path / "killed" / "checkpoints"
    whole = train(tmp_path / "whole", config=given)
    killed = start(given, tmp_path / "killed")
    wait_for(killed, lambda: any(checkpoints.glob("step-*")) and any(checkpoints.glob(".writing-*")))
    killed.kill()
    killed.communicate()
    assert any(checkpoints.glob(".writing-*"))
    resumed = frossl.resume(tmp_path / "killed", quiet=True)
    assert not any(checkpoints.glob(".writing-*"))
    assert_same(weights(whole), weights(resumed))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_cleanly(number, tmp_path):
    process = start(method_config("frossl", checkpoint_every=1000), tmp_path / "run")
    wait_for(process, lambda: steps_of(tmp_path / "run") >= 3)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "continue with: frossl resume" in output
    status = frossl.Run(tmp_path / "run").status
    assert (status["state"], status["reason"]) == ("stopped", number.name)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    assert newest.name == f"step-{status['step']:08d}.pt"


def test_a_full_disk_is_named_and_the_checkpoint_before_it_is_intact(tmp_path):
    """On a small file system of its own, in a mount namespace."""
    disk = tmp_path / "disk"
    disk.mkdir()
    given = method_config("frossl", checkpoint_every=5)
    file = tmp_path / "run.toml"
    file.write_text(given.to_toml())
    frossl = f"{sys.executable} -m frossl"
    script = f"""
        mount -t tmpfs -o size=4m none {disk}
        {frossl} pretrain cifar10-mini --config {file} --out {disk}/run --quiet &
        while ! ls {disk}/run/checkpoints/step-00000010.pt 2>/dev/null; do sleep 0.005; done
        dd if=/dev/zero of={disk}/filler bs=1k 2>/dev/null
        wait $!; echo "code $?"
        ls {disk}/run/checkpoints
        rm {disk}/filler
        {frossl} resume {disk}/run --quiet; echo "code $?"
        cp -r {disk}/run {tmp_path}/saved
    """
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True)
    assert "cannot be written (No space left on device); its newest checkpoint is intact" in done.stderr
    assert "Traceback" not in done.stderr
    first, second = done.stdout.split("code ")[1:]
    assert (first[0], second[0]) == ("1", "0")
    assert "step-" in first
    assert ".writing" not in first
    assert_same(weights(train(tmp_path / "whole", config=given)), weights(tmp_path / "saved"))


def test_a_finished_run_goes_on_to_a_new_end(tmp_path, capfd):
    run = train(tmp_path / "run", config=method_config("frossl"))
    frossl.resume(run.path, epochs=2)
    said = capfd.readouterr().err
    assert "60 steps become 120" in said
    # a cosine of twice the length is about half-way here, where the old one had come to its end
    assert "rate 0.00" in said
    assert "instead of 0)" in said
    status = run.status
    assert (status["state"], status["step"], status["total"]) == ("finished", 2 * STEPS, 2 * STEPS)
    assert run.config.train.epochs == 2
    with pytest.raises(InputError, match="1 epochs end before that"):
        frossl.resume(run.path, epochs=1)
    assert run.config.train.epochs == 2


def test_minutes_are_enough_for_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "3")
    minutes = method_config("frossl", checkpoint_every=None, checkpoint_minutes=1e-9, keep_checkpoints=3)
    run = train(tmp_path / "run", config=minutes)
    assert [p.name for p in sorted((run.path / "checkpoints").iterdir())] == [
        f"step-0000000{n}.pt" for n in (1, 2, 3)
    ]


# steps that are not finite


def absurd_rate(monkeypatch, *, at: int) -> None:
    """The learning rate is 1e9 from that step on."""
    rate = State.lr
    monkeypatch.setattr(State, "lr", lambda self, clock: 1e9 if clock.step >= at else rate(self, clock))


@pytest.mark.parametrize(
    ("optimizer", "masked"),
    [("adamw", False), ("adamw", True), ("adam", True), ("sgd", True), ("lars", True)],
)
def test_a_rate_of_1e9_stops_the_run_with_the_weights_of_the_last_good_step(
    optimizer, masked, tmp_path, monkeypatch
):
    """masked: as on a device, where the flag is read one step later."""
    absurd_rate(monkeypatch, at=20)
    if masked:
        monkeypatch.setattr(Guard.__init__, "__kwdefaults__", {"masked": True})
    given = replace(
        method_config("byol", log_every=1000, checkpoint_every=1000), optim=Optim(optimizer, base_lr=0.01)
    )
    with pytest.raises(BadStepError) as caught:
        train(tmp_path / "run", config=given)
    bad = caught.value.step
    run = frossl.Run(tmp_path / "run")
    assert bad >= 20
    assert (run.status["state"], run.status["step"]) == ("failed", bad)
    assert f"step {bad} is not finite" in run.status["reason"]
    content = json.loads((run.path / "bad_batch.json").read_text())
    assert (content["step"], content["term"]) == (bad, caught.value.term)
    assert len(content["ids"]) == len(content["images"]) == 82
    last = torch.load(run.path / "checkpoints" / f"step-{bad:08d}.pt", weights_only=True)
    assert all(x.isfinite().all() for x in last["method"].values())
    # the same run, stopped by hand before that step
    monkeypatch.setenv("FROSSL_MAX_STEPS", str(bad))
    train(tmp_path / "stopped", config=given)
    good = torch.load(sorted((tmp_path / "stopped" / "checkpoints").iterdir())[-1], weights_only=True)
    assert_same(good["method"], last["method"])
    for before, after in zip(
        good["optimizer"]["state"].values(), last["optimizer"]["state"].values(), strict=True
    ):
        assert_same(before, after)


def test_a_bad_step_is_shown_again(tmp_path, monkeypatch):
    """Weights that overflow in the forward pass: the first module that gives infinity is named."""
    run = train(tmp_path / "run", config=method_config("frossl", checkpoint_every=30))
    newest = sorted((run.path / "checkpoints").iterdir())[-1]
    content = torch.load(newest, weights_only=True)
    content["method"]["projector.0.weight"].fill_(3e38)
    content["step"] = 50
    torch.save(content, newest.with_name("step-00000070.pt"))
    with pytest.raises(TrainingError, match="step 50 is not finite"):
        frossl.resume(run.path, epochs=2, quiet=True)
    for shown in (frossl.replay(run.path), frossl.replay(run.path)):
        assert shown.step == 50
        assert shown.error is not None
        assert shown.place == "projector.0"
    done = subprocess.run([*FROSSL, "resume", str(run.path), "--replay"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "first not finite: projector.0" in done.stdout
    good = torch.load(newest, weights_only=True)
    torch.save(good, run.path / "checkpoints" / "step-00000080.pt")  # as if it had gone on
    with pytest.raises(InputError, match="is not ahead of it"):
        frossl.replay(run.path)
    frossl.resume(run.path, quiet=True)
    assert run.status["state"] == "finished"
    assert not (run.path / "bad_batch.json").exists()
    with pytest.raises(InputError, match="none of its steps was bad"):
        frossl.replay(train(tmp_path / "good").path)


def test_an_eigensolver_that_gives_up_is_a_bad_step(tmp_path):
    """Projections of 1e20 are finite, their squares are not."""
    data = open_dataset("cifar10-mini")
    state = engine.build(engine.settle(method_config("iso"), data), data)
    with torch.no_grad():
        for p in state.method.projector.parameters():
            p.mul_(1e25)
    clock = state.loader.clock(0)
    with pytest.raises(BadStepError):
        train_step(state.loader.source.read(state.loader.ids(0)), state, clock)


def test_batchnorm_forgets_a_bad_step():
    data = open_dataset("cifar10-mini")
    state = engine.build(engine.settle(method_config("frossl"), data), data)
    clock = state.loader.clock(0)
    batch = state.loader.source.read(state.loader.ids(0))
    before = {name: tensor.clone() for name, tensor in state.method.state_dict().items()}
    augment = state.augment
    state.augment = lambda batch, clock: [view * torch.nan for view in augment(batch, clock)]
    with pytest.raises(BadStepError, match="step 0 is not finite: z"):
        train_step(batch, state, clock)
    assert_same(before, state.method.state_dict())
    assert all(p.grad is None for p in state.method.parameters())
