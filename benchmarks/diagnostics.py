"""What do diagnostics cost? Whole runs with the default diagnostics and with none, in turn.

    python -m benchmarks.diagnostics [--rounds 5] [--epochs 16]

The demo's network and views on CIFAR-10 mini, which has labels: looks, online probe and online kNN. Each
round trains both from the beginning; the ratio is that of the seconds that they record for the same steps.
What the run itself says its diagnostics took stands beside it. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import frossl
from frossl.config import Diagnostics

NONE = Diagnostics(every=10**9, share=0.0, probe=False, knn=False)


def seconds(out: Path, diagnostics: Diagnostics, epochs: int) -> tuple[float, float, int]:
    """Of training, the share that the run's own account has, and how often neighbours were asked."""
    config = frossl.recipe("demo")
    config = replace(config, diagnostics=diagnostics, train=replace(config.train, epochs=epochs))
    run = frossl.pretrain(config.data.source, out=out, config=config, quiet=True)
    first, last = run.metrics[0], run.metrics[-1]  # the first steps compile kernels
    shares = [look["share"] for look in run.diagnostics if "share" in look]
    asked = sum("knn" in look for look in run.diagnostics)
    return last["seconds"] - first["seconds"], shares[-1] if shares else 0.0, asked


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=16)
    given = parser.parse_args()
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            order = [("none", NONE), ("default", Diagnostics())]
            taken = {}
            for name, diagnostics in order if number % 2 == 0 else order[::-1]:
                taken[name] = seconds(Path(folder) / f"{name}-{number}", diagnostics, given.epochs)
            ratios.append(taken["default"][0] / taken["none"][0])
            shares.append(taken["default"][1])
            print(
                f"round {number}: {taken['none'][0]:.1f} s without, {taken['default'][0]:.1f} s with, "
                f"ratio {ratios[-1]:.3f}; by its own account {shares[-1]:.1%}, "
                f"neighbours asked {taken['default'][2]} times",
                flush=True,
            )
    print(f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f}), target 1.03")
    print(
        json.dumps(
            {
                "ratio": round(statistics.median(ratios), 4),
                "ratios": [round(r, 4) for r in ratios],
                "own_account": shares,
            }
        )
    )


if __name__ == "__main__":
    main()
