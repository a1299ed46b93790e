"""SHA-256 sums of short runs, to show that a change of the code leaves what a run computes unchanged.

    python -m benchmarks.fingerprints [--python OTHER/.venv/bin/python] [--steps 16]

Seven runs of one process (FroSSL with two and four views, BYOL, MoCo, SwAV, DINO, micro-batches) and one of
two processes, on `cifar10-mini`, by the command line of the given interpreter, so that an older version can
be measured from a clone of its own. For each run the digest of `encoder.safetensors` and its losses. Sums are
comparable on one machine with one number of threads only. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TINY = (
    "--recipe", "demo", "--width", "0.25", "--batch-size", "64", "--seed", "3", "--quiet",
    "--set", "network.stages=2", "--set", "network.projector_hidden=64", "--set", "network.projector_out=32",
    "--set", "train.precision=32-true", "--set", "train.log_every=1",
)  # fmt: skip
"""Options of a run of seconds in which nothing is chosen by speed."""

RUNS: dict[str, tuple[str, ...]] = {
    "frossl, 2 views": (),
    "frossl, 4 views": ("--views", "4"),
    "byol": ("--method", "byol"),
    "moco": ("--method", "moco"),
    "swav": ("--method", "swav"),
    "dino": ("--method", "dino", "--view-set", "multicrop"),
    "micro-batches": ("--micro-batch-size", "16"),
    "two processes": ("--devices", "2"),
}


def fingerprint(python: str, place: Path, options: tuple[str, ...], steps: int) -> dict[str, object]:
    """Train once in an empty folder; the digest of its encoder and its losses."""
    environment = {**os.environ, "FROSSL_MAX_STEPS": str(steps), "OMP_NUM_THREADS": "1"}
    out = place / "run"
    command = [python, "-m", "frossl", "pretrain", "cifar10-mini", "--out", str(out), *TINY, *options]
    done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {
        "encoder": hashlib.sha256((out / "encoder.safetensors").read_bytes()).hexdigest(),
        "losses": [record["loss"] for record in records],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--steps", type=int, default=16)
    given = parser.parse_args()
    found = {}
    for name, options in RUNS.items():
        with tempfile.TemporaryDirectory() as place:
            found[name] = fingerprint(given.python, Path(place), options, given.steps)
        print(f"{name:16} {found[name]['encoder']}  last loss {found[name]['losses'][-1]}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
