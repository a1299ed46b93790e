"""Which number would have told? Rank correlation over methods of what a run knows while it trains, with and
without labels, and what is measured after it.

    python -m benchmarks.agreement [--methods frossl,byol] [--seeds 0] [--epochs 12] [--jobs 2]

Runs are those of `benchmarks.methods` (CIFAR-10 mini, the demo's network and views, the recipe `default` with
what it says of each method), with diagnostics that may take a tenth of the time, as runs are short. Each is a
run folder below --out: what was stopped goes on where it stood, and what is finished is only read. Intervals:
95% by 2,000 bootstrap draws of the methods. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

import frossl
from benchmarks.methods import DATA, start_from
from frossl.config import Diagnostics
from frossl.methods import METHODS

AFTER = ("offline probe", "offline kNN")
LABELLED = ("online probe", "online probe, views", "online kNN")
FREE = (
    "z_rank",
    "z_rankme",
    "features_rank",
    "features_rankme",
    "lidar",
    "features_alpha",
    "alignment",
    "uniformity",
)


def measured(method: str, seed: int, epochs: int, out: Path) -> dict:
    """Train, or go on, or only read."""
    torch.set_num_threads(1)
    folder = out / f"{method}-{seed}"
    stored = folder / "agreement.json"
    if stored.is_file():
        return json.loads(stored.read_text())
    if (folder / "config.toml").is_file():
        run = frossl.resume(folder, quiet=True)
    else:
        config = replace(start_from(method, epochs=epochs), diagnostics=Diagnostics(share=0.1))
        run = frossl.pretrain(DATA, out=folder, config=config, seed=seed, quiet=True)
    found = frossl.measure(folder, ["knn", "probe"])
    looks = [look for look in run.diagnostics if "z_rank" in look]
    asked = [look for look in run.diagnostics if "knn" in look]
    verdicts = list(dict.fromkeys(look["verdict"] for look in looks))
    value = {
        "method": method,
        "seed": seed,
        "offline probe": found["probe"].trained.percent,
        "offline kNN": found["knn"].trained.percent,
        "online probe": asked[-1]["probe"],
        "online probe, views": looks[-1]["probe_views"],
        "online kNN": asked[-1]["knn"],
        **{name: float(np.mean([look.get(name, np.nan) for look in looks[-3:]])) for name in FREE},
        "verdicts": verdicts,
        "share": looks[-1]["share"],
    }
    stored.write_text(json.dumps(value))
    return value


def correlation(rows: list[dict], a: str, b: str, *, draws: int = 2000) -> tuple[float, float, float]:
    """Spearman's, and its interval."""
    x, y = (np.array([row[name] for row in rows], float) for name in (a, b))
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(draws):
        chosen = random.integers(0, len(rows), len(rows))
        if len(set(x[chosen])) > 1 and len(set(y[chosen])) > 1:
            drawn.append(spearmanr(x[chosen], y[chosen]).statistic)
    return spearmanr(x, y).statistic, *np.percentile(drawn, [2.5, 97.5])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/agreement"))
    given = parser.parse_args()
    jobs = [
        (method, int(seed), given.epochs, given.out)
        for seed in given.seeds.split(",")
        for method in given.methods.split(",")
    ]
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=1) as pool:
        rows = pool.starmap(measured, jobs, chunksize=1)
    names = (*AFTER, *LABELLED, *FREE)
    print("| run | " + " | ".join(names) + " | verdicts |")
    print("|" + "---|" * (len(names) + 2))
    for row in sorted(rows, key=lambda row: -row["offline probe"]):
        cells = [f"{row[name]:.3g}" for name in names]
        print(f"| {row['method']} {row['seed']} | {' | '.join(cells)} | {', '.join(row['verdicts'])} |")
    print("\n| number | Spearman with the offline probe | with offline kNN |")
    print("|---|---|---|")
    found = {}
    for name in names:
        found[name] = {after: correlation(rows, name, after) for after in AFTER if after != name}
        cells = [
            "–" if after == name else "{:+.2f} ({:+.2f} to {:+.2f})".format(*found[name][after])
            for after in AFTER
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    print(json.dumps({"rows": rows, "spearman": found}))


if __name__ == "__main__":
    main()
