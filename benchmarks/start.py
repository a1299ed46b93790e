"""How long does a run take to start? From the command to the record of the first step, on small JPEGs.

    python -m benchmarks.start [--images 10000] [--size 96] [--rounds 3] [--budget 5m]

Each start is a process of its own, killed as soon as the first step is recorded. The first one indexes the
folder and may compile; those after it are reported, in turn without a budget and with one (`--budget`), whose
plan times steps for longer. `imports` is the time of the imports alone, also in processes of their own.
Seconds depend on what else the machine does: compare versions in turn. The last line printed is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

LIMIT = 300.0
"""Seconds after which a start has failed."""
IMPORTS = (
    "import frossl._api.train, frossl.cli.train, frossl.augment.fused; from frossl.engine import launch; "
    'from frossl.config import Train; launch(Train(precision="32-true"))'
)


def make_images(folder: Path, count: int, size: int) -> None:
    """Write JPEGs of smooth noise, about as large as photographs of this size, in ten class folders."""
    rng = np.random.default_rng(0)
    for k in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize((size, size))
        noise = rng.integers(-12, 13, (size, size, 3))
        path = folder / f"class{k % 10}" / f"{k:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((np.asarray(coarse) + noise).clip(0, 255).astype(np.uint8)).save(path, quality=85)


def start(data: Path, out: Path, *options: str) -> float:
    """Return the seconds from the command to the record of the first step."""
    command = [sys.executable, "-m", "frossl", "pretrain", str(data), "--out", str(out), "--quiet"]
    command += ["--set", "train.log_every=1", *options]
    metrics = out / "metrics.jsonl"
    began = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        while not (metrics.exists() and metrics.stat().st_size):
            if process.poll() is not None or time.perf_counter() - began > LIMIT:
                process.kill()
                raise SystemExit(f"no step was recorded: {process.communicate()[1].decode()}")
            time.sleep(0.01)
        return time.perf_counter() - began
    finally:
        process.kill()
        process.communicate()


def imports() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return time.perf_counter() - began


def spread(seconds: list[float]) -> dict[str, float]:
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    return {"median": round(middle, 2), "low": round(low, 2), "high": round(high, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", default="5m")
    options = parser.parse_args()
    kinds: dict[str, tuple[str, ...]] = {"epochs": (), "budget": ("--budget", options.budget)}
    seconds: dict[str, list[float]] = {"imports": [], **{kind: [] for kind in kinds}}
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "images"
        make_images(data, options.images, options.size)
        first = start(data, Path(place) / "first")
        print(f"first start {first:.2f} s", flush=True)
        for k in range(options.rounds):
            seconds["imports"].append(imports())
            for kind, flags in kinds.items():
                seconds[kind].append(start(data, Path(place) / f"{kind}{k}", *flags))
            print(", ".join(f"{name} {found[-1]:.2f} s" for name, found in seconds.items()), flush=True)
    found = {name: spread(values) for name, values in seconds.items()}
    print(json.dumps({"images": options.images, "size": options.size, "first": round(first, 2), **found}))


if __name__ == "__main__":
    main()
