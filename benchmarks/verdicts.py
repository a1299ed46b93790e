"""What do runs say of themselves that go well, collapse or diverge?

    python -m benchmarks.verdicts [--jobs 2] [--epochs 13]

CIFAR-10 mini, the demo's network and views, the recipe `default`, default diagnostics: three methods with two
seeds each; FroSSL without its logarithm; FroSSL with the sign of its variance term flipped; three methods at
a hundred times their rate. When each verdict was first given, and ranks and dead units at the end (means of
the last three looks). The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

import frossl
from benchmarks.methods import DATA, start_from
from frossl.config import Config
from frossl.errors import TrainingError

METHODS = ("frossl", "simclr", "byol")


def arms(epochs: int) -> dict[str, Config]:
    found = {}
    for method in METHODS:
        config = start_from(method, epochs=epochs)
        for seed in (0, 1):
            found[f"{method}, seed {seed}"] = replace(config, train=replace(config.train, seed=seed))
        hot = replace(config.optim, base_lr=100 * config.optim.base_lr)
        short = replace(config.train, epochs=5)
        found[f"{method}, rate × 100"] = replace(config, optim=hot, train=short)
    frossl = start_from("frossl", epochs=epochs)
    for name, option in (("without the logarithm", {"log": False}), ("flipped", {"variance_weight": -1.0})):
        objective = replace(frossl.objective, options=option)
        found[f"frossl, {name}"] = replace(frossl, objective=objective)
    return found


def run(name: str, config: Config, out: Path) -> dict:
    torch.set_num_threads(1)
    folder = out / name.replace(" ", "-")
    with contextlib.suppress(TrainingError):
        frossl.pretrain(DATA, out=folder, config=config, quiet=True)
    looks = [look for look in frossl.Run(folder).diagnostics if "verdict" in look]
    first: dict[str, int] = {}
    for look in looks:
        first.setdefault(look["verdict"], look["step"])
    last = {
        key: round(statistics.fmean(look[key] for look in looks[-3:]), 3)
        for key in ("z_rank", "features_rank", "dead_units")
    }
    status = frossl.Run(folder).status
    return {
        "name": name,
        "step": status["step"],
        "state": status["state"],
        "first": first,
        "verdict": status["verdict"]["kind"],
        **last,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=13)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=1) as pool,
    ):
        jobs = [(name, config, Path(folder)) for name, config in arms(given.epochs).items()]
        rows = pool.starmap(run, jobs, chunksize=1)
    print("| run | steps | first given at step | at the end | rank of z | of features | dead units |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        said = ", ".join(f"{kind} {step}" for kind, step in row["first"].items())
        print(
            f"| {row['name']} | {row['step']} | {said} | {row['verdict']} | {row['z_rank']:.1f} | "
            f"{row['features_rank']:.1f} | {row['dead_units']:.1%} |"
        )
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
