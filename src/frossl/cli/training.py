"""Commands that train."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frossl.cli.common import (
    TITLES,
    ConfigFile,
    DataArgument,
    Devices,
    Fraction,
    Json,
    MaxBad,
    Nodes,
    Out,
    Overwrite,
    Quiet,
    RecipeName,
    Root,
    RunArgument,
    Seed,
    Test,
    app,
    print_json,
    quoted,
    say,
    starting_config,
    table,
)

if TYPE_CHECKING:
    from frossl.api import Run
    from frossl.engine import Replay


@app.command(epilog="Example: frossl demo --out runs/demo")
def demo(
    out: Out = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of what fits in seven minutes")] = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Train on a small real data set for a few minutes and say what was learned."""
    began = time.monotonic()
    from frossl import api

    result = api.demo(out=out, epochs=epochs, seed=seed, overwrite=overwrite, quiet=quiet)
    if not result.comparisons:
        return _stopped(result.run)
    table(result.comparisons, to_stderr=json)
    _say_verdict(result.run, to_stderr=json)
    say(f"run folder: {result.run.path}", to_stderr=json)
    if json:
        print_json(
            {
                "run": str(result.run.path),
                "seconds": round(time.monotonic() - began, 1),
                **{name: comparison.percents() for name, comparison in result.comparisons.items()},
                "deviation": {name: c.deviations() for name, c in result.comparisons.items()},
                "interval": {name: c.intervals() for name, c in result.comparisons.items()},
                "verdict": result.run.verdict,
            }
        )
    return 0


@app.command(epilog="Example: frossl pretrain photos --budget 30m --out runs/photos")
def pretrain(
    data: DataArgument,
    out: Out = None,
    config: ConfigFile = None,
    recipe: RecipeName = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE of a TOML file, as optim.clip=3; may be repeated"),
    ] = None,
    method: Annotated[str | None, typer.Option(help="See `frossl list methods`")] = None,
    backbone: Annotated[str | None, typer.Option(help="Any name that timm knows")] = None,
    width: Annotated[float | None, typer.Option(help="Channels as a multiple of the backbone's own")] = None,
    views: Annotated[int | None, typer.Option(help="Views of each image, at least 2")] = None,
    view_set: Annotated[str | None, typer.Option(help="How views are made; see `frossl list views`")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for all of it, in place of epochs: 90s, 30m, 2h, 1h30m")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step, over all devices")] = None,
    micro_batch_size: Annotated[
        int | None, typer.Option(help="Images at once, where memory is short: the same gradient")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate per 256 images")] = None,
    precision: Annotated[
        str | None, typer.Option(help="32-true or bf16-mixed (default: what is faster here)")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Start from this local file of weights")] = None,
    logger: Annotated[
        list[str] | None, typer.Option(help="Tell tensorboard, wandb or mlflow too; may be repeated")
    ] = None,
    seed: Seed = None,
    devices: Devices = None,
    num_nodes: Nodes = None,
    workers: Annotated[int | None, typer.Option(help="Threads that decode (default: all cores)")] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Steps, or minutes (10m), between checkpoints")
    ] = None,
    root: Root = None,
    fraction: Fraction = None,
    max_bad: MaxBad = None,
    labels: Annotated[
        str | None, typer.Option(help="CSV file (path,label), where there are no class folders")
    ] = None,
    test: Test = None,
    overwrite: Overwrite = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and what it would take, and stop")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Learn an encoder from unlabelled images."""
    began = time.monotonic()
    steps, minutes = _steps_or_minutes(checkpoint_every)
    from frossl import api
    from frossl.api.planning import Budget
    from frossl.config import parse_settings

    choices = api.Choices(
        config=starting_config(config, recipe, method, views),
        settings=parse_settings(set_ or []),
        method=method,
        backbone=backbone,
        width=width,
        views=views,
        view_set=view_set,
        epochs=epochs,
        budget=None if budget is None else Budget.of(budget, began),
        batch_size=batch_size,
        micro_batch_size=micro_batch_size,
        lr=lr,
        precision=precision,  # type: ignore[typeddict-item]  # checked there
        weights=weights,
        loggers=logger or (),
        seed=seed,
        devices=devices,
        num_nodes=num_nodes,
        workers=workers,
        checkpoint_every=steps,
        checkpoint_minutes=minutes,
        root=root,
        fraction=fraction,
        max_bad=max_bad,
        labels=labels,
        test=test,
    )
    if dry_run:
        plan = api.plan(data, **choices)
        for line in plan.lines():
            say(line, to_stderr=json)
        if json:
            print_json(plan.to_json())
        return 0
    run = api.pretrain(data, out=out, overwrite=overwrite, quiet=quiet, **choices)
    return _ended(run, quiet=quiet, json=json)


@app.command(epilog="Example: frossl resume runs/photos --epochs 200")
def resume(
    run: RunArgument,
    epochs: Annotated[int | None, typer.Option(help="A new end, for a finished run too")] = None,
    devices: Devices = None,
    num_nodes: Nodes = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Only make the step again that was not finite, and show where")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Go on with a run that was stopped, as if it had never stopped."""
    from frossl import api

    if replay:
        return _show_replay(api.replay(run), run)
    resumed = api.resume(run, epochs=epochs, devices=devices, num_nodes=num_nodes, quiet=quiet)
    return _ended(resumed, quiet=quiet, json=json)


def _steps_or_minutes(text: str | None) -> tuple[int | None, float | None]:
    """`200` are steps, `10m` are minutes."""
    from frossl.errors import InputError

    if text is None:
        return None, None
    try:
        return (None, float(text[:-1])) if text.endswith("m") else (int(text), None)
    except ValueError:
        raise InputError(
            f"--checkpoint-every {text!r} is no number; give steps (200) or minutes (10m)"
        ) from None


def _show_replay(replay: Replay, run: str) -> int:
    if replay.error is None:
        say(f"step {replay.step} is finite this time; go on with: frossl resume {quoted(run)}")
        return 0
    say(str(replay.error))
    say(f"first not finite: {replay.place or 'no output of a module; the loss or the gradient'}")
    for name, size in list(replay.largest.items())[:10]:
        say(f"  largest output {size:<12.4g} {name}")
    say(f"its images: {Path(run) / 'bad_batch.json'}")
    return 0


def _ended(run: Run, *, quiet: bool, json: bool = False) -> int:
    from frossl.engine import rank

    if rank() > 0:
        return 0
    status = run.status
    code = _stopped(run, to_stderr=json) if run.interrupted else 0
    if status["state"] == "stopped" and not run.interrupted:
        say(f"stopped at step {status['step']} of {status['total']} by FROSSL_MAX_STEPS", to_stderr=json)
    if not run.interrupted:
        _found(run, quiet=quiet, to_stderr=json)
    if json:
        print_json({"run": str(run.path), **status, "verdict": run.verdict, "evaluation": run.evaluation})
    return code


def _found(run: Run, *, quiet: bool, to_stderr: bool) -> None:
    """The verdict, the accuracies where there are labels, and where all of it is."""
    _say_verdict(run, to_stderr=to_stderr)
    for record in run.evaluation[-1:]:
        figures = [f"{TITLES.get(row, row)} {percent:.1f}" for row, percent in record["percent"].items()]
        say(
            f"{record['protocol']}, percent right: {', '.join(figures)}; {record['note']}",
            to_stderr=to_stderr,
        )
    say(f"run folder: {run.path}", to_stderr=to_stderr)
    say(f"report: {run.path / 'report.html'}", to_stderr=to_stderr)
    if not quiet and not run.evaluation:
        place = quoted(run.path)
        say(f"did it learn? frossl knn {place} (takes folder names as labels)", to_stderr=to_stderr)


def _say_verdict(run: Run, *, to_stderr: bool) -> None:
    from frossl.live.words import harmless
    from frossl.runs.outcome import ALSO

    verdict, looks = run.verdict, [look for look in run.diagnostics if "share" in look]
    if verdict.get("kind") not in (None, "warming up"):
        said = "; ".join(verdict[name] for name in ("reason", "advice") if verdict.get(name))
        cost = f" (diagnostics took {looks[-1]['share']:.1%} of the time)" if looks else ""
        say(f"verdict: {verdict['kind']}: {said}{cost}", to_stderr=to_stderr)
    for name in ALSO:
        if verdict.get(name):
            say(harmless(verdict[name]), to_stderr=to_stderr)


def _stopped(run: Run, *, to_stderr: bool = False) -> int:
    from frossl.cli import INTERRUPTED

    status = run.status
    say(
        f"stopped at step {status['step']} of {status['total']}, with a checkpoint; "
        f"go on with: frossl resume {quoted(run.path)}",
        to_stderr=to_stderr,
    )
    return INTERRUPTED
