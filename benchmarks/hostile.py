"""What kills, two_writers and fuzz share: tiny images, commands as processes, what a whole folder is."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors import safe_open

FROSSL = [sys.executable, "-m", "frossl"]
TINY = (
    "--recipe", "demo", "--width", "0.25", "--batch-size", "32", "--set", "network.stages=1",
    "--set", "network.projector_hidden=16", "--set", "network.projector_out=16",
    "--set", "train.view_kernel=torch", "--set", "train.precision=32-true", "--set", "train.log_every=1",
)  # fmt: skip
"""Options of a run with a network of ten thousand weights; nothing in them is chosen by speed."""
LOCK = ".lock"
"""A killed process may leave it: it is stale by its process number."""
TEMPORARY = (".writing-", ".partial", "begun.json")
"""What the names of unfinished files begin or end with."""


def write_images(folder: Path, count: int, *, side: int = 16, classes: int = 3, seed: int = 0) -> Path:
    """Smooth random PNG files in class folders."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        path = folder / f"class-{i % classes}" / f"{i:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC).save(path)
    return folder


def environment(place: Path, **more: str) -> dict[str, str]:
    """One thread, and nothing that is written outside of `place`."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("FROSSL_", "SLURM_"))}
    own = {"HOME": str(place / "home"), "FROSSL_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    return {**known, **own, "OMP_WAIT_POLICY": "passive", **more}


class Started:
    """A command in a process group of its own, with what it says in a file; it does not outlive us."""

    def __init__(self, arguments: list[str | Path], place: Path, *, log: Path, **more: str) -> None:
        self.arguments, self.log = [str(a) for a in arguments], log
        log.parent.mkdir(parents=True, exist_ok=True)
        self.began, self.ended = time.monotonic(), 0.0
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*FROSSL, *self.arguments],
                cwd=place,
                env=environment(place, **more),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        atexit.register(self.kill)

    @property
    def alive(self) -> bool:
        living = self.process.poll() is None
        if not living and not self.ended:
            self.ended = time.monotonic()
        return living

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        if self.alive:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.ended = self.ended or time.monotonic()

    def wait(self, seconds: float = 300.0) -> int | None:
        """Its exit code; None, and killed, where it did not end in time."""
        until = time.monotonic() + seconds
        while self.alive and time.monotonic() < until:
            time.sleep(0.02)
        if self.alive:
            self.kill()
            return None
        return self.process.returncode


def end_on_term() -> None:
    """A harness that is told to end takes its commands with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def digests(folder: Path) -> dict[str, str]:
    """Every file below a folder, or the file itself, by its relative name."""
    if folder.is_file():
        return {folder.name: digest(folder)}
    return {name: digest(folder / name) for name in sorted(files(folder))}


def files(folder: Path) -> set[str]:
    """Names of all files below a folder, without the lock."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if Path(name).name != LOCK}


def damaged(folder: Path) -> list[str]:
    """What is not whole below a folder: files that do not open as what they are, and left-over parts."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.name
        if name.startswith(TEMPORARY) or name.endswith(TEMPORARY):
            found.append(f"{path.relative_to(folder)} is left over")
        elif path.is_file() and name != LOCK:
            try:
                _open(path)
            except Exception as error:  # whatever a reader raises, the file is damaged
                found.append(f"{path.relative_to(folder)}: {type(error).__name__}: {error}")
    return found


def _open(path: Path) -> None:
    """Read a file as its name says."""
    match path.suffix:
        case ".json":
            json.loads(path.read_text(encoding="utf-8"))
        case ".jsonl":
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            if text and not text.endswith("\n"):
                raise ValueError("the last line is torn")
            for line in text.splitlines():
                json.loads(line)
        case ".toml":
            tomllib.loads(path.read_text(encoding="utf-8"))
        case ".safetensors":
            with safe_open(path, "np") as opened:
                for name in opened.keys():  # noqa: SIM118  no mapping
                    opened.get_tensor(name)
        case ".npz":
            with np.load(path, allow_pickle=False) as opened:
                for name in opened.files:
                    opened[name]
        case ".npy":
            np.load(path, allow_pickle=False)
        case ".pt":
            import torch

            torch.load(path, map_location="cpu", weights_only=True)
        case ".html":
            if "</html>" not in path.read_text(encoding="utf-8")[-200:]:
                raise ValueError("the page has no end")
        case ".png":
            with Image.open(path) as opened:
                opened.load()
        case _:
            path.read_bytes()


def lines(path: Path) -> list[dict]:
    """Records of a file; [] where there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def run_problems(run: Path, *, encoder: str, closings: int = 1) -> list[str]:
    """What is wrong with a run that came to its end.

    encoder: the digest that its weights must have. closings: how often it has come to an end.
    """
    found = damaged(run)
    if any(".jsonl" in one or "status.json" in one for one in found):
        return found
    status = json.loads((run / "status.json").read_text()) if (run / "status.json").is_file() else {}
    if status.get("state") != "finished":
        found.append(f"its state is {status.get('state')}")
    steps = [record["step"] for record in lines(run / "metrics.jsonl")]
    if steps != list(range(1, status.get("total", 0) + 1)):
        found.append(f"metrics.jsonl has {len(steps)} steps, {len(set(steps))} of them different")
    brief = [one for one in lines(run / "evaluation.jsonl") if "brief" in one["protocol"]]
    if len(brief) != closings:
        found.append(f"evaluation.jsonl has {len(brief)} closing records")
    file = run / "encoder.safetensors"
    if (now := digest(file) if file.is_file() else "missing") != encoder:
        found.append(f"encoder {now} in place of {encoder}")
    return found


def one_line(started: Started) -> str | None:
    """The one line in which a command said what was wrong; None where there is not exactly one."""
    said = [line for line in started.said.splitlines() if line.startswith("frossl")]
    return said[0] if len(said) == 1 and "Traceback" not in started.said else None
