"""Does a run end when its budget says, on a machine that others use too?

    python -m benchmarks.budget [DATA] [--budget 3m] [--only alone killed]

Each run is a process of its own, timed from the command to its end. The situations are: `alone`;
`from start`, with a busy process beside it on a core that this process may use; `from half`, with one that
comes at half time; and `killed`, with one from a quarter of the budget on, killed at half time and resumed at
once. The configuration that the last one leaves is then trained again, alone and without a budget: both
encoders must be the same file.

Reported: seconds of each run and their ratio to the budget, settlements, planned and final steps. Pin it to
one core (`taskset -c 0`), where a neighbour takes half of the time; otherwise the machine must be idle.
The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frossl.config import Config
from frossl.engine.budget import budget_seconds
from frossl.runs import RunFolder

NEIGHBOUR = {"alone": None, "from start": 0.0, "from half": 0.5, "killed": 0.25}
"""Share of the budget after which a neighbour comes, by situation; None for none."""
BUSY = """
import os, sys, time
core, after, parent = int(sys.argv[1]), float(sys.argv[2]), os.getppid()
os.sched_setaffinity(0, {core})
time.sleep(after)
while os.getppid() == parent:
    pass
"""
"""Program that keeps a core busy after so many seconds, until the process ends that started it."""
FROSSL = [sys.executable, "-m", "frossl"]


@contextmanager
def neighbour(after: float | None) -> Iterator[None]:
    """Keep one core of this process busy, from so many seconds on; None for never."""
    if after is None:
        yield
        return
    core = min(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", BUSY, str(core), str(after)])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def run(*arguments: str, kill_after: float | None = None) -> float:
    """Run a command of frossl, or kill it after so many seconds; return the seconds that it took."""
    began = time.perf_counter()
    process = subprocess.Popen([*FROSSL, *arguments, "--quiet"], stdout=subprocess.DEVNULL)
    timer = threading.Timer(kill_after or 0.0, process.kill)
    try:
        if kill_after is not None:
            timer.start()
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if code and kill_after is None:
        sys.exit(f"frossl {' '.join(arguments)} failed")
    return time.perf_counter() - began


def situation(name: str, data: str, budget: str, out: Path) -> dict:
    """Run one situation and return its figures."""
    seconds, share = budget_seconds(budget), NEIGHBOUR[name]
    start = ["pretrain", data, "--budget", budget, "--out", str(out)]
    with neighbour(None if share is None else share * seconds):
        if name == "killed":
            often = ["--checkpoint-minutes", str(seconds / 60 / 50)]
            took = [run(*start, *often, kill_after=seconds / 2), run("resume", str(out))]
        else:
            took = [run(*start)]
    train = Config.read(out / "config.toml").train
    assert train.steps is not None
    status = json.loads((out / "status.json").read_text())
    return {
        "seconds": [round(one, 1) for one in took],
        "training_seconds": round(RunFolder(out).training_seconds(), 1),
        "ratio": round(sum(took) / seconds, 3),
        "settlements": [[one.step, one.total] for one in train.settlements],
        "planned": train.steps,
        "steps": status["step"],
    }


def replayed(data: str, out: Path) -> dict:
    """Train what a run's configuration says, without a budget, and compare the encoders."""
    again = out.with_name("again")
    run("pretrain", data, "--config", str(out / "config.toml"), "--out", str(again))
    digests = [hashlib.sha256((one / "encoder.safetensors").read_bytes()).hexdigest() for one in (out, again)]
    return {"sha256": digests, "same": digests[0] == digests[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="?", default="cifar10-mini")
    parser.add_argument("--budget", default="3m")
    parser.add_argument("--only", nargs="+", choices=NEIGHBOUR, default=list(NEIGHBOUR), help="situations")
    options = parser.parse_args()
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in options.only:
            out = Path(place) / name.replace(" ", "-")
            row = found[name] = situation(name, options.data, options.budget, out)
            print(
                f"{name:11} asked {budget_seconds(options.budget):g} s, took {sum(row['seconds']):.1f} s "
                f"({row['ratio']:.3f}), {len(row['settlements'])} settlements, "
                f"{row['planned']} steps planned, {row['steps']} done",
                flush=True,
            )
            if name == "killed":
                row |= replayed(options.data, out)
                print(
                    f"{name:11} encoder of the replay: {'the same file' if row['same'] else 'ANOTHER FILE'}"
                )
    print(json.dumps({"data": options.data, "budget": options.budget, "situations": found}))


if __name__ == "__main__":
    main()
