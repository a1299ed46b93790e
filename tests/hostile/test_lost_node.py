"""A process of a run that falls silent is named within a minute; one that is only slow is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
NAMESPACES = subprocess.run(["unshare", "-Urnm", "true"], capture_output=True).returncode == 0

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs of several processes")]


def configuration(place: Path, *, epochs: int) -> Path:
    file = place / "config.toml"
    file.write_text(CONFIG.format(epochs=epochs))
    return file


def status(run: Path) -> dict[str, object]:
    return json.loads((run / "status.json").read_text())


def steps_of(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.is_file() else 0


def two_processes(place: Path, *, epochs: int) -> tuple[subprocess.Popen[str], int]:
    """A run that has begun, and the id of its second process."""
    command = [sys.executable, "-m", "frossl", "pretrain", "cifar10-mini", "--devices", "2", "--quiet"]
    command += ["--config", str(configuration(place, epochs=epochs)), "--out", str(place / "run")]
    first = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while steps_of(place / "run") < 3:
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    (second,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    return first, int(second)


@pytest.mark.skipif(not NAMESPACES, reason="network namespaces are not allowed here")
def test_nodes_whose_network_is_cut_name_each_other_within_a_minute(tmp_path):
    script = Path(__file__).with_name("cut_network.sh")
    config, run = configuration(tmp_path, epochs=1000), tmp_path / "run"
    command = ["unshare", "-Urnm", "sh", str(script), sys.executable, str(config), str(run), "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for node in ("0", "1"):
        code, seconds = done.stdout.split(f"node {node}: code ")[1].split(" s")[0].split(", ")
        assert code == "1"
        assert int(seconds) < 60
    said = done.stderr
    assert "frossl: lost process 1 of this run on node-1" in said
    assert "frossl, process 1: lost process 0 of this run on node-0" in said
    assert "Traceback" not in said
    assert status(run)["state"] == "failed"
    assert "node-1" in str(status(run)["reason"])


def test_a_process_that_is_stopped_for_long_is_lost_and_the_run_goes_on_from_its_checkpoint(tmp_path):
    first, second = two_processes(tmp_path, epochs=2)
    os.kill(second, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        first.wait(90)
    finally:
        os.kill(second, signal.SIGKILL)
        first.kill()
    assert time.monotonic() - stopped < 60
    _, said = first.communicate()
    assert first.returncode == 1
    assert "frossl: lost process 1 of this run on " in said
    assert "lost process 1" in str(status(tmp_path / "run")["reason"])
    resume = [sys.executable, "-m", "frossl", "resume", str(tmp_path / "run"), "--quiet"]
    done = subprocess.run(resume, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert status(tmp_path / "run")["state"] == "finished"


def test_a_run_that_is_stopped_as_a_whole_and_continued_has_lost_nobody(tmp_path):
    first, second = two_processes(tmp_path, epochs=2)
    for number, seconds in ((signal.SIGSTOP, 60), (signal.SIGCONT, 0)):
        for process in (first.pid, second):
            os.kill(process, number)
        time.sleep(seconds)
    _, said = first.communicate(timeout=300)
    assert first.returncode == 0, said
    assert status(tmp_path / "run")["state"] == "finished"
