"""Images a second of an exported encoder: onnxruntime beside torch, on the same threads.

    python -m benchmarks.serving RUN [--batches 1,8,64] [--seconds 3] [--rounds 5]

All get the same uint8 images in memory, already at the encoder's size; standardizing is inside. They take
turns in one process, and the ratio is of each round. `torch-export` is its program, not compiled. The last
line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import frossl


def rate(run: Callable[[], object], images: int, seconds: float) -> float:
    run()
    done, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        run()
        done += images
    return done / passed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()

    encoder = frossl.load_encoder(wanted.run)
    with tempfile.TemporaryDirectory() as place:
        graph = frossl.export(wanted.run, format="onnx", out=Path(place) / "onnx")
        program = frossl.export(wanted.run, format="torch-export", out=Path(place) / "pt2")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        traced = torch.export.load(program).module()

    found = {}
    for batch in (int(text) for text in wanted.batches.split(",")):
        shape = (batch, len(encoder.mean), encoder.size, encoder.size)
        array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        images = torch.from_numpy(array)
        ways: dict[str, Callable[[], object]] = {
            "torch": lambda images=images: encoder(images),
            "torch-export": lambda images=images: traced(images),
            "onnxruntime": lambda array=array: session.run(None, {"images": array}),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        with torch.inference_mode():
            for _ in range(wanted.rounds):
                for name, way in ways.items():
                    rates[name].append(rate(way, batch, wanted.seconds))
        ratios = [a / b for a, b in zip(rates["onnxruntime"], rates["torch"], strict=True)]
        middle = {name: round(statistics.median(values), 1) for name, values in rates.items()}
        found[batch] = {**middle, "ratio": round(statistics.median(ratios), 2)}
        spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
        print(f"batch {batch}: {middle} images/s; onnxruntime / torch {found[batch]['ratio']} ({spread})")
    print(json.dumps({"size": encoder.size, "threads": torch.get_num_threads(), "batches": found}))


if __name__ == "__main__":
    main()
