"""How much memory a step takes, at once and in micro-batches that give the same gradient.

    python -m benchmarks.memory [--batch 512] [--size 96] [--parts 1,2,4,8,16]

A ResNet-18 of full width, two views, a step made twice in a process of its own. Reported: the largest
resident memory of that process, what of it came after the networks, data and optimizer were there, what a
plan expects of that, and the seconds of the second step. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path


def resident(kind: str) -> float:
    """MB of this process: `VmRSS` now, `VmHWM` at most so far."""
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def one(batch: int, size: int, parts: int) -> dict:
    import torch

    from frossl import engine
    from frossl.config import Config, Network, Train, ViewSpec
    from frossl.data import ArraySource, Dataset, Split
    from frossl.data.dataset import IMAGENET
    from frossl.engine.step import train_step

    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
    data = Dataset("noise", Split(ArraySource(images), None), None, IMAGENET)
    config = Config(
        network=Network("resnet18", stem="native"),
        train=Train(batch_size=batch, micro_batch_size=None if parts == 1 else batch // parts, device="cpu"),
        views=(ViewSpec(size=size, count=2, flip=0.5, jitter=0.8, gray=0.2, blur=0.5),),
    )
    config = engine.settle(config, data)
    expected = engine.estimate_memory(config, engine.build_method(config), batch).of(batch // parts)
    state = engine.build(config, data)
    before, seconds = resident("VmRSS"), 0.0
    for step in range(2):
        began = time.perf_counter()
        train_step(data.train.source.read(state.loader.ids(0)), state, state.loader.clock(step))
        seconds = time.perf_counter() - began
    peak = resident("VmHWM")
    return {
        "parts": parts,
        "peak_mb": round(peak),
        "above_mb": round(peak - before),
        "expected_mb": round(expected / 2**20),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--parts", default="1,2,4,8,16")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.batch, options.size, options.one)))
        return
    print("| micro-batch | peak | lower by | above what is there anyway | lower by | step |")
    print("|---|---|---|---|---|---|")
    rows = []
    for parts in map(int, options.parts.split(",")):
        command = [sys.executable, "-m", "benchmarks.memory", "--batch", str(options.batch)]
        command += ["--size", str(options.size), "--one", str(parts)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        first = rows[0]
        row["lower"] = round(first["peak_mb"] / row["peak_mb"], 2)
        row["above_lower"] = round(first["above_mb"] / row["above_mb"], 2)
        print(
            f"| {options.batch // parts} | {row['peak_mb']:,} MB | {row['lower']:.1f} × | "
            f"{row['above_mb']:,} MB | {row['above_lower']:.1f} × | {row['seconds']:.1f} s |",
            flush=True,
        )
    print(json.dumps({"batch": options.batch, "size": options.size, "rows": rows}))


if __name__ == "__main__":
    main()
