"""Threads: how they wait beside other processes, and how many there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

import frossl
from frossl import machine
from frossl.engine import cpu_threads
from frossl.machine import WAITING_VARIABLES, Cores
from tests.support.runs import SMALL, train

FROSSL = [sys.executable, "-m", "frossl"]


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment where nobody has decided how threads wait."""
    inherited = {name: value for name, value in os.environ.items() if name not in WAITING_VARIABLES}
    return subprocess.run(
        command, env={**inherited, **variables}, capture_output=True, text=True, check=True, timeout=300
    )


def spins(code: str, **variables: str) -> set[int]:
    """Return how often waiting threads of a program spin before they sleep, as libgomp reports it."""
    shown = run([sys.executable, "-c", code], OMP_DISPLAY_ENV="verbose", **variables).stderr
    return {int(line.split("'")[1]) for line in shown.splitlines() if "GOMP_SPINCOUNT" in line}


@pytest.mark.skipif(sys.platform != "linux", reason="torch has libgomp on Linux only")
def test_threads_sleep_if_frossl_is_imported_before_torch():
    assert spins("import frossl, torch") == {0}
    assert min(spins("import torch, frossl")) > 1000
    assert spins("import frossl, torch", GOMP_SPINCOUNT="77") == {77}


@pytest.mark.parametrize("name", WAITING_VARIABLES)
def test_the_choice_of_the_user_is_respected(name):
    code = f"import frossl, os; print({{name: os.environ.get(name) for name in {WAITING_VARIABLES}}})"
    told = run([sys.executable, "-c", code], **{name: "9"}).stdout
    assert told.strip() == str({other: "9" if other == name else None for other in WAITING_VARIABLES})


@pytest.mark.parametrize(
    ("variables", "status", "words"),
    [({}, "ok", "passive"), ({"OMP_WAIT_POLICY": "active"}, "hint", "spin")],
)
def test_doctor_reports_how_threads_wait(variables, status, words):
    told = json.loads(run([*FROSSL, "doctor", "--json"], **variables).stdout)
    (finding,) = [found for found in told["findings"] if "wait" in found["title"]]
    assert finding["level"] == status
    assert words in finding["title"]


def test_a_training_says_that_torch_came_first(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(machine._Threads, "spin", True)
    frossl.pretrain("cifar10-mini", out=tmp_path / "two", config=SMALL, threads=2)
    assert "".join(capsys.readouterr()).count("OMP_WAIT_POLICY=passive") == 1
    frossl.pretrain("cifar10-mini", out=tmp_path / "one", config=SMALL, threads=1)
    assert "OMP_WAIT_POLICY" not in "".join(capsys.readouterr())


def test_the_number_of_threads_is_stored_used_and_kept_by_resume(tmp_path, monkeypatch):
    seen = []

    def look(ids, tensors, clock):
        seen.append(torch.get_num_threads())

    callback, before = frossl.Callback(every=1, function=look), torch.get_num_threads()
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    run = train(tmp_path / "run", threads=before + 2, callbacks=[callback])
    assert set(seen) == {before + 2}
    assert torch.get_num_threads() == before
    assert run.config.train.threads == before + 2
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    seen.clear()
    frossl.resume(run.path, callbacks=[callback], quiet=True)
    assert set(seen) == {before + 2}


@pytest.mark.parametrize(("quota", "threads"), [(None, 6), (4.0, 4), (1.5, 1), (0.2, 1)])
def test_threads_are_no_more_than_a_control_group_grants(quota, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    granted = Cores(total=8, allowed=6, physical=6, quota=quota)
    monkeypatch.setattr(sys.modules[cpu_threads.__module__], "cores", lambda: granted)
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        with cpu_threads(frossl.Config().train) as settled:
            assert (settled.threads, torch.get_num_threads()) == (threads, threads)
        assert torch.get_num_threads() == 6
    finally:
        torch.set_num_threads(before)
