"""A process of a run that falls silent is named within a minute; one that is only slow is not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.cli import FROSSL
from tests.support.nodes import needs_namespaces, on_two_nodes
from tests.support.runs import read_status, steps_of

CONFIG = """
[network]
width = 0.125
projector_hidden = 16
projector_out = 16

[train]
epochs = {epochs}
batch_size = 64
log_every = 1
checkpoint_every = 5

[diagnostics]
probe = false
knn = false
"""

pytestmark = pytest.mark.slow


def configuration(place: Path, *, epochs: int) -> Path:
    file = place / "config.toml"
    file.write_text(CONFIG.format(epochs=epochs))
    return file


def two_processes(place: Path, *, epochs: int) -> tuple[subprocess.Popen[str], int]:
    """A run that has begun, and the id of its second process."""
    command = [*FROSSL, "pretrain", "cifar10-mini", "--devices", "2", "--quiet"]
    command += ["--config", str(configuration(place, epochs=epochs)), "--out", str(place / "run")]
    first = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while steps_of(place / "run") < 3:
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    (second,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    return first, int(second)


@needs_namespaces
def test_nodes_whose_network_is_cut_name_each_other_within_a_minute(tmp_path):
    config, run = configuration(tmp_path, epochs=1000), tmp_path / "run"
    out, said = on_two_nodes("cut_network.sh", config, run, "5")
    for node in ("0", "1"):
        assert f"node {node}: code 1\n" in out  # not killed after a minute
    assert "frossl: lost process 1 of this run on node-1" in said
    assert "frossl, process 1: lost process 0 of this run on node-0" in said
    assert "Traceback" not in said
    assert read_status(run)["state"] == "failed"
    assert "node-1" in str(read_status(run)["reason"])


def test_a_process_that_is_stopped_for_long_is_lost_and_the_run_goes_on_from_its_checkpoint(tmp_path):
    first, second = two_processes(tmp_path, epochs=2)
    os.kill(second, signal.SIGSTOP)
    try:
        first.wait(60)
    finally:
        os.kill(second, signal.SIGKILL)
        first.kill()
    _, said = first.communicate()
    assert first.returncode == 1
    assert "frossl: lost process 1 of this run on " in said
    assert "lost process 1" in str(read_status(tmp_path / "run")["reason"])
    resume = [*FROSSL, "resume", str(tmp_path / "run"), "--quiet"]
    done = subprocess.run(resume, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert read_status(tmp_path / "run")["state"] == "finished"


def test_a_run_that_is_stopped_as_a_whole_and_continued_has_lost_nobody(tmp_path):
    first, second = two_processes(tmp_path, epochs=2)
    for number, seconds in ((signal.SIGSTOP, 60), (signal.SIGCONT, 0)):
        for process in (first.pid, second):
            os.kill(process, number)
        time.sleep(seconds)
    _, said = first.communicate(timeout=300)
    assert first.returncode == 0, said
    assert read_status(tmp_path / "run")["state"] == "finished"
