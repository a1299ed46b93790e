"""Seconds of `frossl knn` and `frossl probe`, without and with stored features, and of the logistic probe.

    python -m benchmarks.evaluate DATA RUN [--rounds 3] [--converged]

RUN is a run of the images DATA (a data set that `pretrain` takes); a copy of it is measured. Every command is
timed in a process of its own, as a whole and without the imports; in every round once without stored features
and once with them. Reported are medians. The logistic probe is fitted to the features of each row, with all
labels and with few, by frossl and by scikit-learn's `LogisticRegression` with at most 200 iterations, and the
difference in points is given; with --converged scikit-learn's computes in float64 to a tolerance of 1e-8,
which takes minutes. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from frossl._api.eval_context import EvalContext
from frossl._api.evaluate import SplitFeatures, _extract
from frossl.data import held_out
from frossl.evaluation import LinearProbe
from frossl.evaluation.probe import C_GRID, FEW_LABELS_C, _draw, _standardize

TIMED = """
import json, sys, time
import frossl
from frossl._api import evaluate
began = time.perf_counter()
found = getattr(frossl, sys.argv[1])(sys.argv[2], data=sys.argv[3], quiet=True)
one = found.to_json()
print(json.dumps({"computing": time.perf_counter() - began, "found": one}))
"""


def timed(command: str, run: Path, data: str) -> dict[str, Any]:
    """Run an evaluation in a process of its own; return its seconds and figures."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", TIMED, command, run, data], check=True, capture_output=True, text=True
    )
    whole = time.perf_counter() - began
    return {"command": whole, **json.loads(done.stdout.splitlines()[-1])}


def time_commands(run: Path, data: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return median seconds by command and state of the stored features."""
    seconds: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for command in ("knn", "probe"):
            shutil.rmtree(run / "features", ignore_errors=True)
            figures = []
            for state in ("computed", "stored"):
                found = timed(command, run, data)
                figures.append(found["found"])
                for kind in ("command", "computing"):
                    seconds.setdefault(f"{command}, {state}", {}).setdefault(kind, []).append(found[kind])
            assert figures[0] == figures[1], "stored features gave other figures"
    return {
        name: {kind: statistics.median(values) for kind, values in found.items()}
        for name, found in seconds.items()
    }


def by_sklearn(rows: SplitFeatures, per_class: int | None, *, converged: bool) -> float:
    """Return the accuracy of the probe in percent, by scikit-learn."""
    train, labels, test, test_labels = rows
    train, test = (part.double() if converged else part for part in _standardize(train, test))
    options: dict[str, Any] = {"max_iter": 100_000, "tol": 1e-8} if converged else {"max_iter": 200}

    def score(C: float, known: Tensor, asked: Tensor, wanted: Tensor) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(C=C, **options).fit(train[known].numpy(), labels[known].numpy())
        return 100 * float(model.score(asked.numpy(), wanted.numpy()))

    if per_class is not None:
        targets = labels.unique(return_inverse=True)[1]
        drawn = [_draw(targets, per_class, random=(0, draw)) for draw in range(10)]
        return statistics.fmean(score(FEW_LABELS_C, ids, test, test_labels) for ids in drawn)
    aside = held_out(labels)
    best = max(C_GRID, key=lambda C: score(C, ~aside, train[aside], labels[aside]))
    return score(best, torch.ones_like(aside), test, test_labels)


def compare_probes(run: Path, data: str, *, converged: bool) -> list[dict[str, Any]]:
    """Time the probe of each row by frossl and by scikit-learn, and compare their accuracies."""
    context, found = EvalContext.open(run, data=data), []
    for row, features in _extract(context, None, quiet=True).items():
        for per_class in (1, 10, 50, None):
            if per_class is not None and per_class > context.split.smallest_class:
                continue
            began = time.perf_counter()
            own = LinearProbe(per_class).accuracy(*features).percent
            between = time.perf_counter()
            other = by_sklearn(features, per_class, converged=converged)
            seconds = between - began, time.perf_counter() - between
            labels = "all" if per_class is None else str(per_class)
            found.append({"row": row, "labels": labels, "features": features[0].shape[1], "own": own})
            found[-1] |= {"sklearn": other, "seconds": seconds[0], "sklearn_seconds": seconds[1]}
            print(
                f"| {row} | {found[-1]['features']:,} | {labels} | {seconds[0]:.2f} | {seconds[1]:.2f} | "
                f"{own:.2f} | {other:.2f} | {own - other:+.2f} |",
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--converged", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(given.run, Path(folder) / "run"))
        print("| command | features | seconds | without imports |\n|---|---|---|---|")
        commands = time_commands(run, given.data, given.rounds)
        for name, seconds in commands.items():
            command, _, state = name.partition(", ")
            print(f"| {command} | {state} | {seconds['command']:.1f} | {seconds['computing']:.1f} |")
        print("\n| row | features | labels | seconds | scikit-learn | % | scikit-learn | difference |")
        print("|---|---|---|---|---|---|---|---|")
        probes = compare_probes(run, given.data, converged=given.converged)
    print(json.dumps({"threads": torch.get_num_threads(), "commands": commands, "probes": probes}))


if __name__ == "__main__":
    main()
