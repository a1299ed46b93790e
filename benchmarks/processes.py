"""What a second process brings: images per second of whole runs.

    python -m benchmarks.processes [--rounds 3] [--steps 60] [--batch 256]

The default recipe on cifar10-mini: one process on one thread, one on two threads, two of one thread each, and
two with micro-batches. Runs take turns; reported is the median over rounds of each run's median speed, and
the ratio to the first within its round, with the range. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

VARIANTS = {
    "1 process, 1 thread": (1, 1, None),
    "1 process, 2 threads": (1, 2, None),
    "2 processes, 1 thread each": (2, 1, None),
    "2 processes, micro-batches of a quarter": (2, 1, 8),
}


def speed(devices: int, threads: int, parts: int | None, *, steps: int, batch: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "frossl", "pretrain", "cifar10-mini", "--out", str(out), "--quiet"]
        command += ["--batch-size", str(batch), "--devices", str(devices)]
        if parts is not None:
            command += ["--micro-batch-size", str(batch // parts)]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "FROSSL_MAX_STEPS": str(steps)}
        subprocess.run(command, env=env, check=True, capture_output=True)
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(record["images_per_second"] for record in records[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    speeds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(options.rounds):
        for name, variant in VARIANTS.items():
            speeds[name].append(speed(*variant, steps=options.steps, batch=options.batch))
    print("| | images/s | ratio to one process on one thread |\n|---|---|---|")
    rows = {}
    for name, found in speeds.items():
        ratios = [a / b for a, b in zip(found, speeds["1 process, 1 thread"], strict=True)]
        rows[name] = {"images_per_second": statistics.median(found), "ratios": [round(r, 3) for r in ratios]}
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"| {name} | {statistics.median(found):.0f} | {spread} |")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
