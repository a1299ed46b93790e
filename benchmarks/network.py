"""Training speed of a backbone by stem, width, stages, view size, memory format and precision.

    python -m benchmarks.network [--rounds 5] [--batch 128]

One interleaved run: each round times every variant once, so that a slow moment of the machine hits them all.
Reported is images/s (forward + backward of one view, the median over rounds) and the ratio to the first
variant with its spread. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from frossl.config import Network
from frossl.networks import build_backbone

VARIANTS: dict[str, dict] = {
    "half width, 3 stages, fast stem, 20 px": {"width": 0.5, "stages": 3, "stem": "fast", "size": 20},
    "… at 16 px": {"width": 0.5, "stages": 3, "stem": "fast", "size": 16},
    "… at 24 px": {"width": 0.5, "stages": 3, "stem": "fast", "size": 24},
    "… at 32 px": {"width": 0.5, "stages": 3, "stem": "fast", "size": 32},
    "… width 0.75": {"width": 0.75, "stages": 3, "stem": "fast", "size": 20},
    "… width 1": {"width": 1.0, "stages": 3, "stem": "fast", "size": 20},
    "… 4 stages": {"width": 0.5, "stages": 4, "stem": "fast", "size": 20},
    "… small stem (stride 1)": {"width": 0.5, "stages": 3, "stem": "small", "size": 20},
    "… native stem (stride 2, pool)": {"width": 0.5, "stages": 3, "stem": "native", "size": 20},
    "… contiguous": {"width": 0.5, "stages": 3, "stem": "fast", "size": 20, "channels_last": False},
    "… bf16 autocast": {"width": 0.5, "stages": 3, "stem": "fast", "size": 20, "bf16": True},
}


def prepared(variant: dict, batch: int) -> Callable[[], float]:
    """A function that times one forward + backward."""
    options = dict(variant)
    size, bf16, last = options.pop("size"), options.pop("bf16", False), options.pop("channels_last", True)
    layout = torch.channels_last if last else torch.contiguous_format
    model = build_backbone(Network("resnet18", **options), size=size).to(memory_format=layout).train()
    images = torch.randn(batch, 3, size, size).to(memory_format=layout)

    def once() -> float:
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(images).float().square().mean()
        loss.backward()
        model.zero_grad()
        return time.perf_counter() - began

    once()
    return once


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    timers = {name: prepared(variant, options.batch) for name, variant in VARIANTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(options.rounds):
        for name, once in timers.items():
            seconds[name].append(once())
    first = seconds[next(iter(seconds))]
    result = {}
    for name, times in seconds.items():
        ratios = sorted(a / b for a, b in zip(first, times, strict=True))
        speed = options.batch / statistics.median(times)
        result[name] = {"images_per_second": round(speed), "ratio": round(statistics.median(ratios), 3)}
        print(f"{name:40} {speed:7.0f} images/s   × {ratios[0]:.2f} … {ratios[-1]:.2f}")
    capability = torch.backends.cpu.get_cpu_capability()
    print(json.dumps({"cpu": capability, "threads": torch.get_num_threads(), "variants": result}))


if __name__ == "__main__":
    main()
