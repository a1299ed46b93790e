"""Images per second of `frossl embed`, beside a bare loop of the encoder over images in memory.

    python -m benchmarks.embedding [--rounds 3] [--processes 2] [--images 20000]

The network of the default recipe, hardly trained, on images of cifar10-mini, over and over. The bare loop
takes 64 images at a time, 4,000 in all, with all of torch's threads, and keeps nothing. `embed` is timed as a
whole (opening, starting processes, computing, writing .npy) and while it computes (with the start of
processes). Every round has each once, in turn; reported are medians, and ratios to
the bare loop of the same round with their range. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import frossl
from frossl.data import open_dataset


@torch.inference_mode()
def bare(run: Path, images: torch.Tensor) -> float:
    encoder = frossl.load_encoder(run)
    encoder(images[:64])
    began = time.perf_counter()
    for batch in images.split(64):
        encoder(batch)
    return len(images) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--images", type=int, default=20000)
    options = parser.parse_args()
    os.environ["FROSSL_MAX_STEPS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run = frossl.pretrain("cifar10-mini", out=place / "run", quiet=True).path
        images = open_dataset("cifar10-mini").train.source.read(torch.arange(options.images) % 5000).images
        np.save(place / "images.npy", images.numpy())
        rates: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            found = {"bare loop": bare(run, images[:4000])}
            for processes in (1, options.processes):
                out = place / "x.npy"
                began = time.perf_counter()
                done = frossl.embed(
                    run, place / "images.npy", out=out, processes=processes, overwrite=True, quiet=True
                )
                whole = len(images) / (time.perf_counter() - began)
                found |= {f"embed, {processes}: computing": done.rate, f"embed, {processes}: all": whole}
            for name, rate in found.items():
                rates.setdefault(name, []).append(rate)
    print("| | images a second | of the bare loop |")
    print("|---|---|---|")
    rows = {}
    for name, found in rates.items():
        ratios = [rate / base for rate, base in zip(found, rates["bare loop"], strict=True)]
        rows[name] = {"rate": statistics.median(found), "ratios": ratios}
        print(
            f"| {name} | {statistics.median(found):,.0f} | {statistics.median(ratios):.2f} × "
            f"({min(ratios):.2f}–{max(ratios):.2f}) |"
        )
    print(json.dumps({"threads": torch.get_num_threads(), "images": options.images, "rows": rows}))


if __name__ == "__main__":
    main()
