"""float32 against bfloat16 on this CPU: speed, and what is learned after equal steps and equal minutes.

    python -m benchmarks.precision [DATA[=TEST] ...] [--minutes 3] [--seeds 0,1] [--steps N]

For each data set (`cifar10-mini` by default; a folder, and after `=` its test images) and seed, runs in both
precisions with the same time budget, or with `--steps` the same number of steps, one after the other, then
kNN (k 20) on all test images. Reported are steps, step times, accuracies with their 95% intervals, and the
difference bfloat16 − float32 on the same images with its paired 95% interval; over seeds, its mean. The last
line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import frossl
from frossl.config import Precision
from frossl.evaluation.difference import Difference

PRECISIONS: tuple[Precision, ...] = ("32-true", "bf16-mixed")


def measure(data: str, test: str | None, seed: int, given: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Train in both precisions, and return figures by precision and their difference."""
    found: dict[str, Any] = {}
    scores = []
    for precision in PRECISIONS:
        length = (
            {"settings": {"train.steps": given.steps}} if given.steps else {"budget": f"{given.minutes}m"}
        )
        run = frossl.pretrain(
            data, out=place / f"{seed}-{precision}", seed=seed, precision=precision, quiet=True, **length
        )
        score = run.knn(k=20, test=test).trained
        speeds = [record.images_per_second for record in run.metrics if record.images_per_second]
        batch = run.config.train.batch_size
        found[precision] = {
            "steps": run.status.step,
            "step_ms": round(1000 * batch / statistics.median(speeds), 1),
            "percent": round(score.percent, 2),
            "interval": [round(x, 2) for x in score.interval],
        }
        scores.append(score)
    difference = Difference.between(scores[1], scores[0])
    found["difference"] = round(difference.points, 2)
    found["difference_interval"] = [round(x, 2) for x in difference.interval]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="*", default=["cifar10-mini"])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--steps", type=int)
    given = parser.parse_args()
    summary: dict[str, Any] = {}
    for name in given.data:
        data, _, test = name.partition("=")
        of_data: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(prefix="frossl-precision-") as place:
            for seed in map(int, given.seeds.split(",")):
                of_data[str(seed)] = found = measure(data, test or None, seed, given, Path(place))
                for precision in PRECISIONS:
                    print(f"{Path(data).name} seed {seed} {precision}: {found[precision]}", flush=True)
                print(
                    f"  bfloat16 − float32: {found['difference']:+.2f} {found['difference_interval']}",
                    flush=True,
                )
        mean = statistics.fmean(found["difference"] for found in of_data.values())
        print(f"{Path(data).name}: bfloat16 − float32 {mean:+.2f} points, mean of {len(of_data)} seeds")
        summary[Path(data).name] = of_data
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
