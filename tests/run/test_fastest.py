"""Settings that are chosen by timing: what is chosen, that it is remembered, and that it is stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

import frossl
from frossl.config import Config
from frossl.engine import fastest
from frossl.engine.fastest import MIN_GAIN
from frossl.machine import has_bfloat16
from tests.support.runs import SMALL

OPEN = replace(SMALL, train=replace(SMALL.train, precision=None, channels_last=None))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own; steps are timed as shortly as possible."""
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("frossl.engine.plan.TIMING_SECONDS", 0.0)
    return tmp_path / "cache" / "speed"


def test_the_faster_settings_are_chosen_and_reported():
    plan = frossl.plan("cifar10-mini", config=OPEN)
    found, train = plan.to_json()["speedups"], plan.config.train
    assert train.channels_last == (found["channels_last"] > 1 / MIN_GAIN)
    assert (found["bfloat16"] is not None) == has_bfloat16()
    fast = found["bfloat16"] is not None and found["bfloat16"] >= MIN_GAIN
    assert train.precision == ("bf16-mixed" if fast else "32-true")
    assert any("as fast as float32 here" in line for line in plan.lines()) == fast


@pytest.mark.parametrize("gain", [5.0, 0.2])
def test_an_answer_is_remembered_and_used_by_the_run(gain, cache, tmp_path, monkeypatch):
    """Whatever the cache says is used without timing, and ends up in config.toml."""
    monkeypatch.setattr(fastest, "has_bfloat16", lambda: True)
    frossl.plan("cifar10-mini", config=OPEN)
    files = [file for file in cache.iterdir() if "precision" in json.loads(file.read_text())["changes"]]
    (file,) = files
    file.write_text(json.dumps(json.loads(file.read_text()) | {"gain": gain}))
    monkeypatch.setattr(fastest, "_gain", lambda *given, **options: pytest.fail("timed again"))
    monkeypatch.setattr("frossl.engine.plan.MIN_TIMED_STEPS", 1)
    run = frossl.pretrain("cifar10-mini", out=tmp_path / "run", config=OPEN, quiet=True)
    stored = Config.read(run.path / "config.toml").train
    assert stored.precision == ("bf16-mixed" if gain > 1 else "32-true")
    assert stored.channels_last is not None
    assert run.status.state == "finished"


def test_what_is_given_is_not_timed(monkeypatch):
    monkeypatch.setattr(fastest, "_gain", lambda *given, **options: pytest.fail("timed"))
    given = replace(OPEN, train=replace(OPEN.train, precision="32-true", channels_last=False))
    train = frossl.plan("cifar10-mini", config=given).config.train
    assert (train.precision, train.channels_last) == ("32-true", False)


def test_a_damaged_answer_is_measured_again(cache):
    given = replace(OPEN, train=replace(OPEN.train, precision="32-true"))
    frossl.plan("cifar10-mini", config=given)
    (file,) = cache.iterdir()
    for damaged in ("{", '{"gain": -1}', '{"gain": "x"}', "[]"):
        file.write_text(damaged)
        frossl.plan("cifar10-mini", config=given)
        assert json.loads(file.read_text())["gain"] > 0


def test_without_the_instructions_bfloat16_is_not_chosen(tmp_path, monkeypatch):
    (tmp_path / "open.toml").write_text(OPEN.to_toml())
    code = (
        "import frossl, pathlib; config = frossl.Config.read(pathlib.Path('open.toml')); "
        "print(frossl.plan('cifar10-mini', config=config).config.train.precision)"
    )
    monkeypatch.chdir(tmp_path)
    limited = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=limited, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "32-true"
