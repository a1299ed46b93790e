"""Train on a small real data set for a few minutes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from frossl._api.common import make_console, print_lines
from frossl._api.evaluate import measure
from frossl._api.folders import make_free_folder
from frossl._api.run import Run
from frossl._api.train import pretrain
from frossl.engine.budget import Budget
from frossl.evaluation import Evaluation
from frossl.recipes import recipe
from frossl.runs import RunFolder

DEMO_SECONDS = 7 * 60.0
"""Seconds that training, evaluation and report of the demo may take."""


@dataclass(frozen=True)
class Demo:
    """Result of `demo`."""

    run: Run
    """Run that was trained."""
    seconds: float
    """Seconds that training and evaluation took together."""
    comparisons: dict[str, Evaluation]
    """Evaluations by protocol: `knn`, `probe10`, `probe`; empty if the run was stopped before its end."""


def demo(
    *,
    out: str | Path | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Demo:
    """Train on a small real data set for a few minutes and measure what was learned.

    A machine that would need more than seven minutes for the recipe gets fewer steps, unless `epochs` is
    given: a few steps are timed and thrown away, and the number of steps is written to the configuration.

    Args:
        out: Run folder to write; `runs/demo` if None.
        epochs: Number of epochs, whatever time they take.
        seed: Seed of weights, image order and views.
        overwrite: Replace a run that is in `out`.
        quiet: Print nothing.

    Returns:
        The run and its evaluations.
    """
    began = time.monotonic()
    console, config = make_console(quiet), recipe("demo")
    out = Path(out) if out is not None else make_free_folder(Path("runs") / "demo")
    RunFolder.check_free(out, overwrite=overwrite)
    run = pretrain(
        config.data.source,
        out=out,
        config=config,
        epochs=epochs,
        budget=Budget(DEMO_SECONDS, began, only_shortens=True) if epochs is None else None,
        seed=seed,
        overwrite=overwrite,
        quiet=quiet,
    )
    if run.interrupted:
        return Demo(run, time.monotonic() - began, {})
    print_lines(console, "evaluating raw pixels, the untrained network and the trained network")
    evaluations = measure(run.path, ["knn", "probe10", "probe"])
    return Demo(run, time.monotonic() - began, evaluations)
