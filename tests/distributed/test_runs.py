"""Whole runs of several processes: started in every way, stopped, killed, resumed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import frossl
from frossl.config import Config
from tests.support.cli import FROSSL
from tests.support.nodes import needs_namespaces, on_two_nodes
from tests.support.runs import PATIENCE, assert_same, method_config, start, steps_of, train, wait_for, weights

NUMBERS = ("step", "epoch", "lr", "loss", "invariance", "variance", "effective_rank")


def curve(run: Path) -> list[dict[str, float]]:
    return [{name: record[name] for name in NUMBERS} for record in frossl.Run(run).metrics]


def finish(process: subprocess.Popen[str], *, patience: float = PATIENCE) -> tuple[int, str]:
    output, errors = process.communicate(timeout=patience)
    return process.returncode, output + errors


def resume(run: Path, *options: str) -> tuple[int, str]:
    command = [*FROSSL, "resume", str(run), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """A run of two processes that nobody disturbed."""
    out = tmp_path_factory.mktemp("pair") / "run"
    code, said = finish(start(method_config("frossl"), out, "--devices", "2"))
    assert code == 0, said
    assert frossl.Run(out).config.train.devices == 2
    return out


def test_two_processes_learn_as_one_does(pair, tmp_path):
    """BatchNorm sees half of the batch each time, so the curves are close and not the same."""
    alone = train(tmp_path / "alone", config=method_config("frossl"))
    for two, one in zip(curve(pair), curve(alone.path), strict=True):
        assert (two["step"], two["lr"]) == (one["step"], one["lr"])
        assert two["loss"] == pytest.approx(one["loss"], abs=0.4)


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_at_one_step_and_they_go_on_together(pair, tmp_path):
    process = start(method_config("frossl"), tmp_path / "run", "--devices", "2")
    wait_for(process, lambda: steps_of(tmp_path / "run") >= 10)
    process.terminate()
    code, said = finish(process)
    assert code == 130, said
    assert frossl.Run(tmp_path / "run").status["reason"] == "SIGTERM"
    code, said = resume(tmp_path / "run")
    assert code == 0, said
    assert "2 processes, each with 41 images" in said
    assert_same(weights(pair), weights(tmp_path / "run"))
    assert curve(tmp_path / "run") == curve(pair)


@pytest.mark.slow
def test_a_killed_process_ends_the_others_with_a_word_and_the_run_resumes(pair, tmp_path):
    process = start(method_config("frossl"), tmp_path / "run", "--devices", "2")
    wait_for(process, lambda: steps_of(tmp_path / "run") >= 10)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    code, said = finish(process, patience=60)
    assert code == 1
    assert "frossl: lost another process of this run" in said
    assert "Traceback" not in said
    assert frossl.Run(tmp_path / "run").status["state"] == "failed"
    assert resume(tmp_path / "run")[0] == 0
    assert_same(weights(pair), weights(tmp_path / "run"))


@pytest.mark.slow
def test_three_processes_go_on_to_the_same_bits(tmp_path):
    """Sums of three are rounded by the order in which they are made."""
    code, said = finish(start(method_config("frossl"), tmp_path / "whole", "--devices", "3"))
    assert code == 0, said
    process = start(method_config("frossl"), tmp_path / "run", "--devices", "3")
    wait_for(process, lambda: steps_of(tmp_path / "run") >= 10)
    process.kill()
    finish(process)
    code, said = resume(tmp_path / "run")
    assert code == 0, said
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "run"))


@pytest.mark.slow
def test_another_number_of_processes_goes_on_and_says_what_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "20")
    code, said = finish(start(method_config("frossl"), tmp_path / "run", "--devices", "2"))
    assert code == 0, said
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    code, said = resume(tmp_path / "run", "--devices", "1")
    assert code == 0, said
    assert "processes so far: 2, from here on: 1; batches and views stay the same" in said
    run = frossl.Run(tmp_path / "run")
    assert run.status["state"] == "finished"
    assert run.config.train.devices == 1


@pytest.mark.slow
def test_torchrun_starts_the_same_run(pair, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(method_config("frossl").to_toml())
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = ["-m", "frossl", "pretrain", "cifar10-mini", "--config", str(file), "--out"]
    done = subprocess.run(
        [sys.executable, *launcher, *command, str(tmp_path / "run"), "--quiet"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run folder:") == 1
    assert curve(tmp_path / "run") == curve(pair)


@pytest.mark.slow
def test_tasks_of_slurm_find_each_other(pair, tmp_path):
    """As srun starts them: one command twice, told apart by its environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1"}
    job |= {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1"}
    place = {"SLURM_NODEID": "0", "SLURM_JOB_NAME": "train", "MASTER_ADDR": "127.0.0.1"}
    tasks = [
        start(
            method_config("frossl"),
            tmp_path / "run",
            **{**job, **place, "MASTER_PORT": str(port), "SLURM_PROCID": task, "SLURM_LOCALID": task},
        )
        for task in ("0", "1")
    ]
    for code, said in map(finish, tasks):
        assert code == 0, said
    assert curve(tmp_path / "run") == curve(pair)


@pytest.mark.slow
def test_a_job_of_slurm_goes_back_in_line_and_the_same_command_goes_on(tmp_path):
    """SIGUSR1 comes before the job's end. `scontrol` is a script that writes down what it is told."""
    bin_, told = tmp_path / "bin", tmp_path / "told"
    bin_.mkdir()
    (bin_ / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    (bin_ / "scontrol").chmod(0o755)
    job = {"SLURM_JOB_ID": "4711", "PATH": f"{bin_}:{os.environ['PATH']}"}
    out = tmp_path / "run"
    first = start(method_config("frossl"), out, **job)
    wait_for(first, lambda: steps_of(out) >= 5)
    first.send_signal(signal.SIGUSR1)
    finish(first)
    assert told.read_text() == "requeue 4711\n"
    assert frossl.Run(out).status["state"] == "stopped"
    code, said = finish(start(method_config("frossl"), out, **job, SLURM_RESTART_COUNT="1"))
    assert code == 0, said
    assert_same(weights(train(tmp_path / "whole", config=method_config("frossl"))), weights(out))
    code, said = finish(start(method_config("frossl"), out, SLURM_JOB_ID="4712"))  # another job does not
    assert code == 2
    assert "already holds a run" in said


def test_too_many_processes_for_a_batch_are_refused(tmp_path):
    code, said = finish(start(method_config("frossl", batch_size=3), tmp_path / "run", "--devices", "2"))
    assert code == 2
    assert "2 processes share a batch of 3" in said


# two nodes


def two_nodes(given: Config, out: Path, *step: str) -> str:
    file = out.with_suffix(".toml")
    file.write_text(given.to_toml())
    return "".join(on_two_nodes("two_nodes.sh", file, out, *step))


@needs_namespaces
@pytest.mark.slow
def test_two_nodes_have_the_curve_of_two_devices(pair, tmp_path):
    said = two_nodes(method_config("frossl"), tmp_path / "run")
    assert "node 0: code 0" in said
    assert "node 1: code 0" in said
    assert curve(tmp_path / "run") == curve(pair)
    assert_same(weights(pair), weights(tmp_path / "run"))


@needs_namespaces
@pytest.mark.slow
def test_a_node_that_is_killed_ends_the_other_within_a_minute_and_the_run_resumes(pair, tmp_path):
    said = two_nodes(method_config("frossl"), tmp_path / "run", "20")
    assert "frossl: lost another process of this run" in said
    assert "node 0: code 1" in said  # not killed after a minute
    # one machine takes over both parts
    code, said = resume(tmp_path / "run", "--devices", "2", "--num-nodes", "1")
    assert code == 0, said
    assert_same(weights(pair), weights(tmp_path / "run"))


def test_a_checkpoint_says_how_many_processes_wrote_it_and_runs_no_code(pair):
    newest = sorted((pair / "checkpoints").iterdir())[-1]
    content = torch.load(newest, weights_only=True)
    assert (content["step"], content["processes"]) == (60, 2)
