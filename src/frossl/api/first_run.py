"""A small real data set, for a few minutes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import frossl.engine as engine
from frossl.api.catalog import recipe
from frossl.api.measuring import measure
from frossl.api.run import Run
from frossl.api.shared import console_of, say
from frossl.api.subject import Comparison
from frossl.api.training import make_free_folder, pretrain
from frossl.config import Config
from frossl.data import open_dataset
from frossl.runs import RunFolder

DEMO_SECONDS, DEMO_TRIAL = 7 * 60, 5.0


@dataclass(frozen=True)
class Demo:
    """What `demo` found out."""

    run: Run
    seconds: float
    comparisons: dict[str, Comparison]
    """By protocol: `knn`, `probe10`, `probe`. Empty if the run was stopped before its end."""


def demo(
    *,
    out: str | Path | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Demo:
    """Train on a small real data set for a few minutes and say what was learned.

    A machine that would need longer than seven minutes for the recipe gets fewer epochs, unless `epochs` is
    given: the first steps are timed, thrown away, and what was settled is written into the configuration.
    """
    began = time.monotonic()
    console, config = console_of(quiet), recipe("demo")
    out = Path(out) if out is not None else make_free_folder(Path("runs") / "demo")
    RunFolder.check_free(out, overwrite=overwrite)
    if epochs is None:
        epochs = _epochs_within(DEMO_SECONDS, config, console)
    run = pretrain(
        config.data.source,
        out=out,
        config=config,
        epochs=epochs,
        seed=seed,
        overwrite=overwrite,
        quiet=quiet,
    )
    if run.interrupted:
        return Demo(run, time.monotonic() - began, {})
    say(console, "evaluating: raw pixels, the untrained network, the trained one")
    comparisons = measure(run.path, ["knn", "probe10", "probe"])
    return Demo(run, time.monotonic() - began, comparisons)


def _epochs_within(seconds: float, config: Config, console: Console) -> int:
    """The recipe's epochs, or as many as fit in the time on this machine."""
    dataset = open_dataset(config.data.source)
    trial = engine.try_out(engine.settle(config, dataset), dataset, seconds=DEMO_TRIAL)
    epoch = trial.step_seconds * (len(dataset.train.source) // config.train.batch_size)
    epochs = max(1, min(config.train.epochs, int(seconds / epoch)))
    minutes = epochs * epoch / 60
    step = 1e3 * trial.step_seconds
    say(console, f"a step takes {step:.0f} ms here: {epochs} epochs in about {minutes:.1f} minutes")
    return epochs
