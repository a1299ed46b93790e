"""Commands that train an encoder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frossl.cli.common import (
    ROW_TITLES,
    ConfigFile,
    DataArgument,
    Devices,
    Json,
    Nodes,
    Out,
    Overwrite,
    Quiet,
    RecipeName,
    RunArgument,
    Seed,
    app,
    option_help,
    print_json,
    print_table,
    quoted,
    run_flags,
    say,
    starting_config,
)

if TYPE_CHECKING:
    from frossl import Run
    from frossl.engine import Replay


@app.command(epilog="Example: frossl demo --out runs/demo")
def demo(
    out: Out = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs (default: as many as fit in seven minutes)")
    ] = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Train on a small real data set for a few minutes and evaluate the result."""
    began = time.monotonic()
    import frossl

    result = frossl.demo(out=out, epochs=epochs, seed=seed, overwrite=overwrite, quiet=quiet)
    if not result.comparisons:
        return _say_stopped(result.run)
    print_table(result.comparisons, to_stderr=json)
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
@run_flags
def pretrain(
    data: DataArgument,
    out: Out = None,
    config: ConfigFile = None,
    recipe: RecipeName = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Setting of the TOML file as NAME=VALUE, such as optim.clip=3; may be repeated"
        ),
    ] = None,
    views: Annotated[int | None, typer.Option(help="Number of views of each image, at least 2")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Total time, in place of epochs: 90s, 30m, 2h, 1h30m")
    ] = None,
    *,
    checkpoint_every: Annotated[str | None, typer.Option(help=option_help("checkpoint_every"))] = None,
    overwrite: Overwrite = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan with its time and memory, and exit")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> int:
    """Train an encoder on unlabelled images."""
    began = time.monotonic()
    options |= _steps_or_minutes(checkpoint_every, options)
    import frossl
    from frossl.config import parse_settings
    from frossl.engine.budget import Budget

    choices = frossl.RunOptions(
        config=starting_config(config, recipe, options["method"], views),
        settings=parse_settings(set_ or []),
        views=views,
        budget=None if budget is None else Budget.of(budget, began),
        **options,  # type: ignore[typeddict-item]  # checked there
    )
    if dry_run:
        plan = frossl.plan(data, **choices)
        for line in plan.lines():
            say(line, to_stderr=json)
        if json:
            print_json(plan.to_json())
        return 0
    run = frossl.pretrain(data, out=out, overwrite=overwrite, quiet=quiet, **choices)
    return _finish(run, quiet=quiet, json=json)


@app.command(epilog="Example: frossl resume runs/photos --epochs 200")
def resume(
    run: RunArgument,
    epochs: Annotated[int | None, typer.Option(help="New number of epochs, also for a finished run")] = None,
    devices: Devices = None,
    num_nodes: Nodes = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Only repeat the step that was not finite, and show where")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Resume a stopped run as if it had never been stopped."""
    import frossl

    if replay:
        return _show_replay(frossl.replay(run), run)
    resumed = frossl.resume(run, epochs=epochs, devices=devices, num_nodes=num_nodes, quiet=quiet)
    return _finish(resumed, quiet=quiet, json=json)


def _steps_or_minutes(text: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Parse --checkpoint-every: a number of steps, or of minutes (`10m`) as in version 0.1.0."""
    from frossl.errors import InputError

    if text is None:
        return {}
    try:
        if not text.endswith("m"):
            return {"checkpoint_every": int(text)}
        minutes = float(text[:-1])
    except ValueError:
        raise InputError(f"--checkpoint-every {text!r} is not a number; give steps, such as 200") from None
    if options["checkpoint_minutes"] is not None:
        raise InputError("--checkpoint-every and --checkpoint-minutes both give minutes; give one of them")
    return {"checkpoint_minutes": minutes}


def _show_replay(replay: Replay, run: str) -> int:
    if replay.error is None:
        say(f"step {replay.step} is finite this time; continue with: frossl resume {quoted(run)}")
        return 0
    say(str(replay.error))
    say(f"first not finite: {replay.place or 'the loss or the gradient, no output of a module'}")
    for name, size in list(replay.largest.items())[:10]:
        say(f"  largest output {size:<12.4g} {name}")
    say(f"its images: {Path(run) / 'bad_batch.json'}")
    return 0


def _finish(run: Run, *, quiet: bool, json: bool = False) -> int:
    from frossl.engine import rank

    if rank() > 0:
        return 0
    status = run.status
    code = _say_stopped(run, to_stderr=json) if run.interrupted else 0
    if status.state == "stopped" and not run.interrupted:
        say(f"stopped at step {status.step} of {status.total} by FROSSL_MAX_STEPS", to_stderr=json)
    if not run.interrupted:
        _say_results(run, quiet=quiet, to_stderr=json)
    if json:
        print_json({"run": str(run.path), **status, "verdict": run.verdict, "evaluation": run.evaluation})
    return code


def _say_results(run: Run, *, quiet: bool, to_stderr: bool) -> None:
    """Print the verdict, the accuracies if there are labels, and the paths of the run and its report."""
    _say_verdict(run, to_stderr=to_stderr)
    for record in run.evaluation[-1:]:
        scores = [f"{ROW_TITLES.get(row, row)} {percent:.1f}" for row, percent in record.percent.items()]
        say(
            f"{record.protocol}, accuracy in percent: {', '.join(scores)}; {record.note}",
            to_stderr=to_stderr,
        )
    say(f"run folder: {run.path}", to_stderr=to_stderr)
    say(f"report: {run.path / 'report.html'}", to_stderr=to_stderr)
    if not quiet and not run.evaluation:
        place = quoted(run.path)
        say(f"to evaluate it: frossl knn {place} (labels are the names of the folders)", to_stderr=to_stderr)


def _say_verdict(run: Run, *, to_stderr: bool) -> None:
    from frossl.runs.outcome import VERDICT_NOTES
    from frossl.text import sanitize

    verdict, records = run.verdict, [record for record in run.diagnostics if "share" in record]
    if verdict.get("kind") not in (None, "warming up"):
        text = "; ".join(verdict[name] for name in ("reason", "advice") if verdict.get(name))
        cost = f" (diagnostics took {records[-1]['share']:.1%} of the time)" if records else ""
        say(f"verdict: {verdict['kind']}: {text}{cost}", to_stderr=to_stderr)
    for name in VERDICT_NOTES:
        if verdict.get(name):
            say(sanitize(verdict[name]), to_stderr=to_stderr)


def _say_stopped(run: Run, *, to_stderr: bool = False) -> int:
    from frossl.cli import INTERRUPTED

    status = run.status
    say(
        f"stopped at step {status.step} of {status.total}, with a checkpoint; "
        f"continue with: frossl resume {quoted(run.path)}",
        to_stderr=to_stderr,
    )
    return INTERRUPTED
