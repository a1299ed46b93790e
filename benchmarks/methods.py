"""Does every method learn? kNN on CIFAR-10 mini after a few minutes each, beside the untrained network.

    python -m benchmarks.methods [--methods frossl,byol] [--seeds 0,1] [--epochs 12]
    python -m benchmarks.methods --search        rates of four methods, on a validation split
    python -m benchmarks.methods --constant      FroSSL with V · N constant
    python -m benchmarks.methods --together      FroSSL with BatchNorm by view, and by step
    python -m benchmarks.methods --multicrop     FroSSL with two, eight and multi-crop views, at equal minutes

Every run is a run folder below --out: what was stopped goes on where it stood, and what is finished is only
read. Two runs at a time, on one thread each. Test images: the data set's own; with --search, a fifth of the
training images, by a hash. Accuracy is kNN (k 20), with the binomial deviation of one run, or the spread
over seeds. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import frossl
from frossl import engine
from frossl.config import Config, ViewSpec
from frossl.data import Dataset, open_dataset
from frossl.evaluation import Score, extract, knn_accuracy, labelled_split
from frossl.methods import METHODS

DATA = "cifar10-mini"
SEARCHED = ("frossl", "vicreg", "simclr", "byol")
RATES = (0.0015, 0.003, 0.006, 0.012)
EPOCHS = {"empssl": 2}
"""Where a step costs more than two views do."""
MARGIN = 3.0
"""Points above the untrained network, besides two deviations, that count as learning."""


@dataclass(frozen=True)
class Arm:
    """One row of a table: a configuration, to be run with several seeds."""

    name: str
    config: Config
    validation: bool = False


@dataclass(frozen=True)
class Result:
    trained: Score
    untrained: Score
    rank: float | None
    minutes: float
    steps: int


def start_from(method: str, *, epochs: int) -> Config:
    """The recipe `default` for that method, on the network and views of the demo."""
    config, demo = frossl.recipe("default", method=method), frossl.recipe("demo")
    return replace(
        config,
        data=demo.data,
        network=replace(config.network, stages=demo.network.stages, stem=demo.network.stem),
        train=replace(config.train, epochs=EPOCHS.get(method, epochs), checkpoint_every=100, log_every=1),
        views=() if config.view_set else demo.views,
    )


def with_rate(config: Config, rate: float) -> Config:
    return replace(config, optim=replace(config.optim, base_lr=rate))


def with_views(config: Config, *views: ViewSpec, batch_size: int) -> Config:
    return replace(config, views=views, train=replace(config.train, batch_size=batch_size))


def all_methods(names: Sequence[str], epochs: int) -> list[Arm]:
    return [Arm(name, start_from(name, epochs=epochs)) for name in names]


def search(names: Sequence[str], epochs: int) -> list[Arm]:
    return [
        Arm(f"{name}, rate {rate:g}", with_rate(start_from(name, epochs=epochs), rate), validation=True)
        for name in names
        for rate in RATES
    ]


def constant(epochs: int) -> list[Arm]:
    """Views times images is 512 in every step, and so are the view-passes in all. With one weight w, and with
    w scaled so that invariance and variance keep the balance they have at two views of 128 images."""
    base = start_from("frossl", epochs=epochs)
    arms = []
    for views, images in ((2, 256), (4, 128), (8, 64)):
        config = with_views(base, replace(base.views[0], count=views), batch_size=images)
        config = replace(config, train=replace(config.train, epochs=max(1, round(epochs * 2 / views))))
        for w in (1.4, 1.4 * images / 128 / (views - 1)):
            weighted = replace(config.objective, options={"invariance_weight": w})
            arms.append(Arm(f"{views} × {images}, w {w:.3g}", replace(config, objective=weighted)))
    return arms


def together(epochs: int) -> list[Arm]:
    """FroSSL with BatchNorm by view, and with the views of a step as one batch."""
    base = start_from("frossl", epochs=epochs)
    kinds = {"by view": False, "together": True}
    return [Arm(name, replace(base, train=replace(base.train, together=t))) for name, t in kinds.items()]


def multicrop(minutes: float) -> list[Arm]:
    """As many epochs as fit in the minutes, by steps timed here in turn."""
    base = start_from("frossl", epochs=1)
    view = base.views[0]
    local = replace(view, size=12, count=6, scale=(0.05, 0.25))
    kinds = {
        "2 × 20 px": (replace(view, count=2),),
        "8 × 20 px": (replace(view, count=8),),
        "2 × 20 px + 6 × 12 px": (replace(view, count=2, scale=(0.25, 1.0)), local),
    }
    data = open_dataset(DATA)
    configs = {name: with_views(base, *views, batch_size=128) for name, views in kinds.items()}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    torch.set_num_threads(1)
    for _ in range(3):
        for name, config in configs.items():
            trial = engine.time_steps(engine.settle(config, data), data, seconds=2.0)
            seconds[name].append(trial.step_seconds)
    arms = []
    for name, config in configs.items():
        epoch = statistics.median(seconds[name]) * (len(data.train.source) // config.train.batch_size)
        epochs = max(1, round(minutes * 60 / epoch))
        arms.append(Arm(name, replace(config, train=replace(config.train, epochs=epochs))))
    return arms


def run(arm: Arm, seed: int, folder: Path) -> Result:
    """Train, or go on, or only read; then ask the nearest neighbours."""
    torch.set_num_threads(1)
    stored = folder / "result.json"
    if stored.is_file():
        return read_result(json.loads(stored.read_text()))
    if (folder / "config.toml").is_file():
        done = frossl.resume(folder, quiet=True)
    else:
        done = frossl.pretrain(DATA, out=folder, config=arm.config, seed=seed, quiet=True)
    if done.interrupted:
        raise KeyboardInterrupt
    trained = done.encoder()
    untrained = trained.with_backbone(engine.build_method(done.config).encoder)
    data: Dataset = open_dataset(DATA)
    split = labelled_split(replace(data, test=None) if arm.validation else data)
    scores = [
        knn_accuracy(*extract(encoder.eval(), split.train), *extract(encoder.eval(), split.test))
        for encoder in (trained, untrained)
    ]
    last = done.metrics[-1]
    value = {
        "trained": vars(scores[0]),
        "untrained": vars(scores[1]),
        "rank": last.get("effective_rank"),
        "minutes": last["seconds"] / 60,
        "steps": last["step"],
    }
    stored.write_text(json.dumps(value))
    return read_result(value)


def read_result(value: dict) -> Result:
    scores = {kind: Score(**value[kind]) for kind in ("trained", "untrained")}
    return Result(**{**value, **scores})


def spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def row(name: str, results: Sequence[Result]) -> dict:
    """Means over seeds; `std` is that of the difference, by counting and over seeds, whichever is more."""
    trained, untrained = ([getattr(r, kind).percent for r in results] for kind in ("trained", "untrained"))
    gains = [a - b for a, b in zip(trained, untrained, strict=True)]
    counting = math.hypot(results[0].trained.deviation, results[0].untrained.deviation)
    std = max(counting, spread(gains))
    ranks = [r.rank for r in results if r.rank is not None]
    return {
        "name": name,
        "trained": [round(x, 1) for x in trained],
        "untrained": [round(x, 1) for x in untrained],
        "mean": round(statistics.mean(trained), 2),
        "gain": round(statistics.mean(gains), 2),
        "std": round(std, 2),
        "learned": statistics.mean(gains) >= MARGIN + 2 * std,
        "rank": round(statistics.mean(ranks), 1) if ranks else None,
        "minutes": round(statistics.mean(r.minutes for r in results), 2),
        "steps": results[0].steps,
    }


def show(line: dict) -> None:
    rank = "–" if line["rank"] is None else f"{line['rank']:.0f}"
    cells = [
        line["name"],
        ", ".join(map(str, line["trained"])),
        ", ".join(map(str, line["untrained"])),
        f"{line['gain']:+.1f} ± {line['std']:.1f}",
        "yes" if line["learned"] else "no",
        rank,
        str(line["steps"]),
        f"{line['minutes']:.1f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", default="")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=2.0, help="of --multicrop")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    kinds = parser.add_mutually_exclusive_group()
    for kind in ("search", "constant", "together", "multicrop"):
        kinds.add_argument(f"--{kind}", action="store_true")
    options = parser.parse_args()

    names = [name for name in options.methods.split(",") if name]
    if options.search:
        arms = search(names or SEARCHED, options.epochs)
    elif options.constant:
        arms = constant(options.epochs)
    elif options.together:
        arms = together(options.epochs)
    elif options.multicrop:
        arms = multicrop(options.minutes)
    else:
        arms = all_methods(names or list(METHODS), options.epochs)
    seeds = [int(seed) for seed in options.seeds.split(",")]

    def folder(arm: Arm, seed: int) -> Path:
        """By name and configuration: what was changed since is run again."""
        slug = "".join(c if c.isalnum() or c in ".-" else "-" for c in arm.name)
        digest = hashlib.sha256(f"{arm.config.to_toml()}{os.environ.get('FROSSL_MAX_STEPS')}".encode())
        return options.out / f"{slug}-seed{seed}-{digest.hexdigest()[:8]}"

    print("| | trained | untrained | gain | learned | rank | steps | minutes |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        asked = {
            arm.name: [pool.apply_async(run, (arm, seed, folder(arm, seed))) for seed in seeds]
            for arm in arms
        }
        for name, pending in asked.items():
            rows.append(row(name, [one.get() for one in pending]))
            show(rows[-1])
    print(json.dumps({"cpu": torch.backends.cpu.get_cpu_capability(), "seeds": seeds, "rows": rows}))


if __name__ == "__main__":
    main()
