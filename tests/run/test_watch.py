"""Real runs, seen from a second process and in a real terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli import FROSSL
from tests.support.images import write_image

PYTHON = [sys.executable, "-c"]
ONCE = "import sys; from frossl.live import watch; watch(sys.argv[1], once=True)"
WATCH = "import sys; from frossl.live import watch; watch(sys.argv[1], silent=float(sys.argv[2]))"


@pytest.fixture
def pictures(tmp_path) -> Path:
    """A folder whose name and files try to be more than names."""
    folder = tmp_path / "<i>[red]\u202epictures"
    for i in range(16):
        write_image(folder / "ab"[i % 2] / f"{i}.png", width=24, height=24, seed=i)
    return folder


def pretrain(data: Path, run: Path) -> list[str]:
    command = [*FROSSL, "pretrain", data, "--out", run, "--recipe", "demo"]
    options = ["--width", "0.25", "--batch-size", "8", "--epochs", "1000", "--checkpoint-every", "10"]
    return [str(word) for word in [*command, *options]]


def started(command: list[str], *, steps: int | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if steps is not None:
        environment["FROSSL_MAX_STEPS"] = str(steps)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def watching(run: Path, *, silent: float = 30.0) -> subprocess.Popen[str]:
    return started([*PYTHON, WATCH, str(run), str(silent)])


def wait_for(
    condition: Callable[[], bool], *, seconds: float = 60, told: Callable[[], object] = lambda: ""
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited too long: {told()}"
        time.sleep(0.1)


def recorded(run: Path) -> int:
    """Records so far."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


@pytest.mark.slow
def test_a_run_is_followed_through_its_death_and_its_return_to_its_end(pictures, tmp_path):
    run = tmp_path / "run"
    first = started(pretrain(pictures, run))
    wait_for(lambda: recorded(run) >= 2 and any((run / "checkpoints").glob("*.pt")))
    follower, leaver = watching(run, silent=1.0), watching(run)
    try:
        assert re.match(r"step \d+/2000  ", follower.stdout.readline())
        leaver.stdout.readline()
        leaver.send_signal(signal.SIGINT)
        assert leaver.wait(20) == 0
        assert leaver.stderr.read() == ""
        assert first.poll() is None  # the run has not noticed
        first.kill()
        first.wait(20)
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"step": 12345, "lo')  # torn
        assert json.loads((run / "status.json").read_text())["state"] == "running"
        lines = iter(follower.stdout.readline, "")
        silence = next(line for line in lines if line.startswith("no new records"))
        assert re.fullmatch(r"no new records for 0:\d\d\n", silence)
        assert follower.poll() is None  # it goes on waiting
        files = sorted(run.rglob("*"))
        once = subprocess.run([*PYTHON, ONCE, run], capture_output=True, text=True, check=True)
        assert re.match(r"step \d+/2000  ", once.stdout)
        assert sorted(run.rglob("*")) == files
        at = json.loads((run / "status.json").read_text())["step"] + 20
        back = started([*FROSSL, "resume", str(run)], steps=at)
        _, err = back.communicate(timeout=90)
        assert back.returncode == 0, err
        out, err = follower.communicate(timeout=20)
        assert follower.returncode == 0, err
        *_, line, last = out.splitlines()
        assert line.startswith(f"step {at}/2000  ")
        assert last == f"stopped by FROSSL_MAX_STEPS, at step {at} of 2000"
        assert "12345" not in out
    finally:
        for process in (first, follower, leaver):
            process.kill()
            process.communicate()


class Tmux:
    """Terminals of their own server."""

    def __init__(self) -> None:
        self.server = f"frossl-{uuid.uuid4().hex[:8]}"

    def __call__(self, *arguments: str) -> str:
        command = ["tmux", "-L", self.server, "-f", os.devnull, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def open(self, name: str, command: list[str], *, width: int, height: int, **environment: str) -> None:
        words = [*(f"{key}={value}" for key, value in environment.items()), *command]
        line = f"env -u COLUMNS -u LINES {shlex.join(words)}; echo exit code $?; sleep 60"
        self("new-session", "-d", "-s", name, "-x", str(width), "-y", str(height), line)

    def shown(self, name: str) -> list[str]:
        return self("capture-pane", "-p", "-t", name).splitlines()


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: real terminals are not tried")
    terminals = Tmux()
    yield terminals
    with contextlib.suppress(subprocess.CalledProcessError):  # it ends with its last terminal
        terminals("kill-server")


@pytest.mark.slow
def test_in_terminals_of_any_size(pictures, tmp_path, tmux):
    """A run and its watchers, resized while they live; each leaves its last frame and a cursor behind."""
    run = tmp_path / "run"
    path = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    utf8, plain = {"LC_ALL": "C.UTF-8", **path}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", **path}
    plain |= {"PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:backslashreplace"}
    tmux.open("run", pretrain(pictures, run), width=180, height=36, **utf8)
    wait_for(lambda: recorded(run) >= 2)
    watch = [*PYTHON, WATCH, str(run), "30"]
    tmux.open("small", watch, width=44, height=12, **utf8)
    tmux.open("line", watch, width=60, height=3, **utf8)
    tmux.open("plain", watch, width=80, height=24, **plain)
    frame = re.compile(r"step [\d,]+ of ")

    def drawn(name: str) -> list[str]:
        return [line for line in tmux.shown(name) if frame.match(line)]

    for name in ("run", "small", "plain"):
        wait_for(lambda name=name: bool(drawn(name)), told=lambda name=name: tmux.shown(name))
    large = "\n".join(tmux.shown("run"))
    for words in ("━", "loss", "variance", "rank", "images/s", "checkpoint", r"<i>[red]\u202epictures"):
        assert words in large, large
    assert "\u202e" not in large.partition(str(run))[2]
    wait_for(lambda: any(line.startswith("step ") for line in tmux.shown("line")))
    assert "\n".join(tmux.shown("plain")).isascii()
    assert max(map(len, tmux.shown("small"))) <= 44

    for width, height in ((70, 20), (44, 12), (100, 30)):
        tmux("resize-window", "-t", "run", "-x", str(width), "-y", str(height))
        time.sleep(1.3)
        assert len(drawn("run")) == 1, "\n".join(tmux.shown("run"))
    for name in ("small", "line", "plain"):
        tmux("send-keys", "-t", name, "C-c")
        wait_for(lambda name=name: "exit code 0" in tmux.shown(name))
        assert tmux("display-message", "-p", "-t", name, "#{cursor_flag}").strip() == "1"
    tmux("send-keys", "-t", "run", "C-c")
    wait_for(lambda: "exit code 130" in tmux.shown("run"))
    end = "\n".join(tmux.shown("run"))
    assert "stopped by SIGINT" in end
    assert len(drawn("run")) == 1
    assert tmux("display-message", "-p", "-t", "run", "#{cursor_flag}").strip() == "1"


STEPS = """
import signal, sys, time
from pathlib import Path
from frossl.live import Dashboard, NonBlockingConsole, RunView
from frossl.runs import StepRecord
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with Dashboard(NonBlockingConsole(stderr=True), RunView(title="steps")) as shown:
    for step in range(1, 31):
        shown.step(step, 30, StepRecord(loss=1.0, seconds=step / 10))
        shown.message("a line")
        time.sleep(0.1)
Path(sys.argv[1]).write_text("all steps")
"""


@pytest.mark.parametrize("event", ["closed", "stopped"])
def test_neither_a_closed_nor_a_stopped_terminal_ends_or_holds_a_run(event, tmp_path, tmux):
    """A window that is closed under a run that ignores that; and Ctrl-S, after which nothing is taken."""
    done = tmp_path / "done"
    path = os.pathsep.join(sys.path)
    tmux.open("other", ["sleep", "60"], width=80, height=24)
    tmux.open("run", [*PYTHON, STEPS, str(done)], width=80, height=24, PYTHONPATH=path)
    wait_for(lambda: any("of 30" in line for line in tmux.shown("run")))
    if event == "closed":
        tmux("kill-session", "-t", "run")
    else:
        tmux("send-keys", "-t", "run", "C-s")
    wait_for(done.is_file, seconds=15)
    if event == "stopped":
        assert "exit code" not in "".join(tmux.shown("run"))
        tmux("send-keys", "-t", "run", "C-q")
        wait_for(lambda: "exit code 0" in "".join(tmux.shown("run")))
