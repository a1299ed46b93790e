"""The verbs of the command line; each imports what it needs when it is called."""

from __future__ import annotations

import json as json_
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from frossl.api import Comparison, Run
    from frossl.engine import Replay
    from frossl.evaluation import Score

app = typer.Typer(
    name="frossl",
    help="Turn a folder of unlabelled images into an encoder by self-supervised learning.",
    epilog="Start with: frossl demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import frossl

        typer.echo(f"frossl {frossl.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    pass


Out = Annotated[str | None, typer.Option(help="Where the run is kept (default: runs/NAME)")]
Devices = Annotated[int | None, typer.Option(help="Processes on each node, one for each device")]
Nodes = Annotated[int | None, typer.Option(help="Nodes; start the same command on each (docs/scale.md)")]
Root = Annotated[str | None, typer.Option(help="The folder of a data set given by its name")]
Fraction = Annotated[float | None, typer.Option(help="Share of every class that is learned from")]
MaxBad = Annotated[float | None, typer.Option(help="Share of files that may be unreadable (default: 0.01)")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same machine: same weights")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but results and errors")]
Json = Annotated[bool, typer.Option("--json", help="End standard output with one JSON object")]


@app.command()
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
    _table(result.comparisons, to_stderr=json)
    _say(f"run folder: {result.run.path}", to_stderr=json)
    if json:
        _print_json(
            {
                "run": str(result.run.path),
                "seconds": round(time.monotonic() - began, 1),
                **{name: comparison.percents() for name, comparison in result.comparisons.items()},
                "deviation": {name: c.deviations() for name, c in result.comparisons.items()},
                "interval": {name: c.intervals() for name, c in result.comparisons.items()},
            }
        )
    return 0


@app.command(epilog="Example: frossl pretrain photos --out runs/photos")
def pretrain(
    data: Annotated[str, typer.Argument(help="A folder, list, archive or array of images, or a name")],
    out: Out = None,
    config: Annotated[Path | None, typer.Option(help="Start from this TOML file")] = None,
    recipe: Annotated[str | None, typer.Option(help="Start from this recipe; see `frossl list`")] = None,
    method: Annotated[str | None, typer.Option(help="See `frossl list`")] = None,
    backbone: Annotated[str | None, typer.Option(help="Any name that timm knows")] = None,
    width: Annotated[float | None, typer.Option(help="Channels as a multiple of the backbone's own")] = None,
    views: Annotated[int | None, typer.Option(help="Views of each image, at least 2")] = None,
    view_set: Annotated[str | None, typer.Option(help="How views are made; see `frossl list`")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step, over all devices")] = None,
    micro_batch_size: Annotated[
        int | None, typer.Option(help="Images at once, where memory is short: the same gradient")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate per 256 images")] = None,
    weights: Annotated[str | None, typer.Option(help="Start from this local file of weights")] = None,
    logger: Annotated[
        list[str] | None, typer.Option(help="Tell tensorboard, wandb or mlflow too; may be repeated")
    ] = None,
    seed: Seed = None,
    devices: Devices = None,
    num_nodes: Nodes = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Steps, or minutes (10m), between checkpoints")
    ] = None,
    root: Root = None,
    fraction: Fraction = None,
    max_bad: MaxBad = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> int:
    """Learn an encoder from unlabelled images."""
    steps, minutes = _steps_or_minutes(checkpoint_every)
    from frossl import api

    run = api.pretrain(
        data,
        out=out,
        config=_starting_config(config, recipe, method),
        method=method,
        backbone=backbone,
        width=width,
        views=views,
        view_set=view_set,
        epochs=epochs,
        batch_size=batch_size,
        micro_batch_size=micro_batch_size,
        lr=lr,
        weights=weights,
        loggers=logger or (),
        seed=seed,
        devices=devices,
        num_nodes=num_nodes,
        checkpoint_every=steps,
        checkpoint_minutes=minutes,
        root=root,
        fraction=fraction,
        max_bad=max_bad,
        overwrite=overwrite,
        quiet=quiet,
    )
    return _ended(run, quiet=quiet)


@app.command(epilog="Example: frossl resume runs/photos --epochs 200")
def resume(
    run: Annotated[str, typer.Argument(help="A run folder")],
    epochs: Annotated[int | None, typer.Option(help="A new end, for a finished run too")] = None,
    devices: Devices = None,
    num_nodes: Nodes = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Only make the step again that was not finite, and show where")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Go on with a run that was stopped, as if it had never stopped."""
    from frossl import api

    if replay:
        return _show_replay(api.replay(run), run)
    resumed = api.resume(run, epochs=epochs, devices=devices, num_nodes=num_nodes, quiet=quiet)
    return _ended(resumed, quiet=quiet)


OtherData = Annotated[str | None, typer.Option("--data", help="Other images than it was trained on")]
Test = Annotated[str | None, typer.Option(help="Images to be tested on, in class folders")]
Against = Annotated[
    list[str] | None, typer.Option(help="A run, a name of timm, or NAME=FILE of weights; may be repeated")
]
Step = Annotated[int | None, typer.Option(help="This checkpoint of the run, not its end")]
RunArgument = Annotated[str, typer.Argument(help="A run folder")]


@app.command(epilog="Example: frossl knn runs/photos --against resnet18=resnet18.safetensors")
def knn(
    run: RunArgument,
    k: Annotated[list[int] | None, typer.Option(help="How many neighbours vote (default: 20, 200)")] = None,
    crops: Annotated[
        int | None, typer.Option(help="Mean features of so many random crops, not of the whole image")
    ] = None,
    data: OtherData = None,
    root: Root = None,
    test: Test = None,
    against: Against = None,
    step: Step = None,
    json: Json = False,
) -> int:
    """Did it learn? Nearest neighbours, beside raw pixels and the untrained network."""
    from frossl import api

    where = api.Where(data=data, root=root, test=test, against=against or (), step=step)
    found = api.measure(run, [f"knn{max(0, n)}" for n in k] if k else None, crops=crops, **where)
    return _measured(run, found, json=json)


@app.command(epilog="Example: frossl probe runs/photos --paper")
def probe(
    run: RunArgument,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's protocol: 100 epochs of crops and flips; minutes")
    ] = False,
    labels: Annotated[
        list[int] | None, typer.Option(help="Labels of each class (default: 1, 5, 10, 50, and all)")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Of --paper")] = 100,
    lr: Annotated[float, typer.Option(help="Of --paper")] = 0.3,
    data: OtherData = None,
    root: Root = None,
    test: Test = None,
    against: Against = None,
    step: Step = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """How good is it? A linear classifier on the features, with few labels and with all."""
    from frossl import api

    where = api.Where(data=data, root=root, test=test, against=against or (), step=step)
    if paper:
        found = {"linear": api.linear(run, epochs=epochs, lr=lr, quiet=quiet, **where)}
    else:
        found = api.probe(run, labels=labels, **where)
    return _measured(run, found, json=json)


@app.command(epilog="Example: frossl finetune runs/photos --labels 0.1")
def finetune(
    run: RunArgument,
    labels: Annotated[float, typer.Option(help="Share of the labels: 0.01, 0.1, 1")] = 1.0,
    epochs: Annotated[int, typer.Option(help="Passes over the labelled images")] = 30,
    lr: Annotated[float, typer.Option(help="Peak rate of AdamW")] = 1e-3,
    layer_decay: Annotated[
        float, typer.Option(help="Each layer moves at this share of the rate of the next")
    ] = 1.0,
    mixup: Annotated[float, typer.Option(help="Mix images and labels, such as 0.2; 0 for none")] = 0.0,
    seed: Annotated[int, typer.Option(help="Order, crops and mixing")] = 0,
    data: OtherData = None,
    root: Root = None,
    test: Test = None,
    against: Against = None,
    step: Step = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """What did it save? Train all layers with labels, from the run and from the untrained network."""
    from frossl import api

    where = api.Where(data=data, root=root, test=test, against=against or (), step=step)
    found = api.finetune(
        run,
        labels=labels,
        epochs=epochs,
        lr=lr,
        layer_decay=layer_decay,
        mixup=mixup,
        seed=seed,
        quiet=quiet,
        **where,
    )
    return _measured(run, {"finetune": found}, json=json)


def _measured(run: str, found: dict[str, Comparison], *, json: bool) -> int:
    _table(found, to_stderr=json)
    if json:
        _print_json({"run": run, **{name: comparison.to_json() for name, comparison in found.items()}})
    return 0


@app.command()
def checkpoints(run: RunArgument, json: Json = False) -> int:
    """Which checkpoint is best? Neighbours where there are labels, RankMe without."""
    from rich.console import Console
    from rich.table import Table

    from frossl import api

    found = api.checkpoints(run)
    table = Table(title="checkpoints", title_justify="left")
    for title in ("step", "kNN, k 20", "RankMe", "effective rank"):
        table.add_column(title, justify="right")
    for saved in found.saved:
        marks = ("*" if saved == found.best_by_labels else "", "*" if saved == found.best_without else "")
        accuracy = f"{_figure(saved.knn)}{marks[0]}" if found.labelled else "no labels"
        table.add_row(str(saved.step), accuracy, f"{saved.rankme:.1f}{marks[1]}", f"{saved.rank:.1f}")
    Console(stderr=json).print(table)
    said = "the newest is as good as any, as far as can be told"
    if found.best_by_labels is not None and found.separated:
        said = f"step {found.best_by_labels.step} is better than the newest"
    elif not found.labelled:
        said = f"by RankMe alone step {found.best_without.step}, which is a hint and no measurement"
    _say(said, to_stderr=json)
    if json:
        best = found.best_by_labels
        rows = [
            {
                "step": saved.step,
                "knn": round(saved.knn.percent, 2) if found.labelled else None,
                "interval": [round(x, 2) for x in saved.knn.interval] if found.labelled else None,
                "rankme": round(saved.rankme, 2),
                "rank": round(saved.rank, 2),
            }
            for saved in found.saved
        ]
        _print_json(
            {
                "run": run,
                "checkpoints": rows,
                "best_by_labels": best.step if best else None,
                "best_without_labels": found.best_without.step,
                "separated": found.separated,
            }
        )
    return 0


@app.command(epilog="Example: frossl spectrum runs/a runs/b --out spectrum.png")
def spectrum(
    runs: Annotated[list[str], typer.Argument(help="Run folders")],
    out: Annotated[str, typer.Option(help="The picture, as .png and .svg")] = "spectrum.png",
    features: Annotated[
        bool, typer.Option("--features", help="Of the features, not the projections")
    ] = False,
    relative: Annotated[
        bool, typer.Option("--relative", help="Shares of their sum: many objectives see no scale")
    ] = False,
    json: Json = False,
) -> int:
    """How the eigenvalues went: the paper's figure, a panel for each run."""
    from frossl import api

    found = api.spectrum(runs, out=out, of="features" if features else "z", relative=relative)
    for one in found:
        told = f"saturates at step {one.saturation}" if one.saturation else "has not saturated"
        count = len(one.eigenvalues[0])
        _say(f"{one.name}: {told}; λ1/λ{count} = {one.condition:.3g} at the end", to_stderr=json)
    _say(f"spectrum: {Path(out).with_suffix('.png')}, {Path(out).with_suffix('.svg')}", to_stderr=json)
    if json:
        _print_json({"runs": [one.to_json() for one in found]})
    return 0


@app.command(epilog="Example: frossl compare runs/a runs/b --target 40 --out compare.png")
def compare(
    runs: Annotated[list[str], typer.Argument(help="Run folders; those that differ by seed count as one")],
    target: Annotated[
        float | None, typer.Option(help="Percent of online accuracy; when was it reached?")
    ] = None,
    out: Annotated[str | None, typer.Option(help="A picture, as .png and .svg")] = None,
    json: Json = False,
) -> int:
    """Runs beside each other: accuracy with its error, time and epochs to a target, cost."""
    from rich.console import Console
    from rich.table import Table

    from frossl import api

    found = api.compare(runs, target=target, out=out)
    table = Table(title=f"{found.protocol}; ± one standard error", title_justify="left")
    table.add_column("")
    reached = f"to {found.target:g}% online"
    for title in ("percent", "seeds", f"epochs {reached}", f"minutes {reached}", "ms a step", "peak GB"):
        table.add_column(title, justify="right")
    for row in found.to_json()["arms"]:
        first = row["reached"]
        table.add_row(
            row["name"],
            f"{row['percent']:.1f} ± {row['error']:.1f}",
            str(len(row["seeds"])),
            f"{first['epochs']:.1f}" if first else "never",
            f"{first['seconds'] / 60:.1f}" if first else "never",
            f"{row['step_ms']:.0f}" if row["step_ms"] is not None else "",
            f"{row['memory_gb']:.1f}" if row["memory_gb"] is not None else "",
        )
    Console(stderr=json).print(table)
    for pair in found.pairs:
        how = "separated" if pair.separated else "not separated"
        said = f"{pair.better} − {pair.other}: {pair.difference:+.1f} ± {pair.error:.1f}, {how}"
        _say(said, to_stderr=json)
    _say(found.verdict(), to_stderr=json)
    if out is not None:
        _say(f"picture: {Path(out).with_suffix('.png')}, {Path(out).with_suffix('.svg')}", to_stderr=json)
    if json:
        _print_json(found.to_json())
    return 0


@app.command(epilog="Example: frossl pack photos --out photos-128 --size 128")
def pack(
    data: Annotated[str, typer.Argument(help="A folder, list, archive or array of images, or a name")],
    out: Annotated[str, typer.Option(help="A new folder for the pixels")],
    size: Annotated[
        int | None, typer.Option(help="Pixels along each side (default: theirs, up to 256)")
    ] = None,
    root: Root = None,
    fraction: Fraction = None,
    max_bad: MaxBad = None,
    quiet: Quiet = False,
) -> int:
    """Decode images once; training from the result touches no decoder."""
    from frossl import api

    folder = api.pack(data, out=out, size=size, root=root, fraction=fraction, max_bad=max_bad, quiet=quiet)
    _say(f"packed: {folder}")
    return 0


@app.command(epilog="Example: frossl check photos")
def check(
    data: Annotated[str, typer.Argument(help="A folder, list, archive or array of images, or a name")],
    root: Root = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Look through images before a long run: which cannot be read, which are there twice."""
    from frossl import api

    found = api.check(data, root=root, quiet=quiet)
    classes = f", {len(found.classes)} classes" if found.classes else ""
    tested = f", {found.test_images:,} to be tested on" if found.test_images else ""
    _say(f"{found.images:,} images{tested}{classes}; {found.size} px", to_stderr=json)
    _several(
        f"{len(found.bad_files):,} cannot be read",
        [f"{name!r}: {reason}" for name, reason in found.bad_files.items()],
        to_stderr=json,
    )
    _say(f"{found.copies:,} are exact copies of another one", to_stderr=json)
    if found.test_images:
        _several(
            f"{len(found.crossing):,} to be tested on are among those to learn from",
            [f"{test!r} = {train!r}" for train, test in found.crossing],
            to_stderr=json,
        )
    if json:
        _print_json(vars(found))
    return 0


def _several(title: str, lines: list[str], *, to_stderr: bool) -> None:
    """A few of them; JSON has all."""
    _say(title, to_stderr=to_stderr)
    for line in lines[:10]:
        _say(f"  {line}", to_stderr=to_stderr)
    if len(lines) > 10:
        _say(f"  and {len(lines) - 10:,} more (--json names all)", to_stderr=to_stderr)


@app.command(epilog="Example: frossl views photos --view-set multicrop --out views.png")
def views(
    data: Annotated[str, typer.Argument(help="A folder, list, archive or array of images, or a name")],
    out: Annotated[str, typer.Option(help="The picture")] = "views.png",
    config: Annotated[Path | None, typer.Option(help="Views of this TOML file")] = None,
    recipe: Annotated[str | None, typer.Option(help="Views of this recipe; see `frossl list`")] = None,
    method: Annotated[str | None, typer.Option(help="What the recipe says of this method")] = None,
    view_set: Annotated[str | None, typer.Option(help="How views are made; see `frossl list`")] = None,
    views: Annotated[int | None, typer.Option(help="Views of each image, at least 2")] = None,
    images: Annotated[int, typer.Option(help="How many images")] = 8,
    seed: Seed = None,
    root: Root = None,
) -> int:
    """Draw what the networks would see."""
    from frossl import api

    start = _starting_config(config, recipe, method)
    path = api.views(
        data, out=out, config=start, view_set=view_set, views=views, images=images, seed=seed, root=root
    )
    _say(f"views: {path}")
    return 0


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="methods, data, views, recipes or backbones")] = None,
    like: Annotated[str, typer.Option(help="Only names that contain this")] = "",
) -> int:
    """Names that the other commands know."""
    from frossl import api

    kinds = api.names(kind)
    for title, names in kinds.items():
        shown = [name for name in names if like in name]
        if kind is None:
            _say(f"{title}: {', '.join(shown)}")
            continue
        width = max(map(len, shown), default=0)
        for name in shown:
            _say(f"{name:{width}}  {names[name]}".rstrip())
    return 0


def _starting_config(path: Path | None, recipe: str | None, method: str | None) -> Any:
    from frossl import api
    from frossl.config import Config
    from frossl.errors import InputError
    from frossl.methods import METHODS

    if path is not None and recipe is not None:
        raise InputError("--config and --recipe are two places to start from; give one")
    if recipe is not None:
        return api.recipe(recipe, method=method)
    if path is None:
        return None
    if not path.is_file():
        raise InputError(f"there is no file {path}; check --config")
    return Config.read(path, method=method, known=METHODS)


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
        _say(f"step {replay.step} is finite this time; go on with: frossl resume {shlex.quote(run)}")
        return 0
    _say(str(replay.error))
    _say(f"first not finite: {replay.place or 'no output of a module; the loss or the gradient'}")
    for name, size in list(replay.largest.items())[:10]:
        _say(f"  largest output {size:<12.4g} {name}")
    _say(f"its images: {Path(run) / 'bad_batch.json'}")
    return 0


def _ended(run: Run, *, quiet: bool) -> int:
    from frossl.engine import rank

    if rank() > 0:
        return 0
    if run.interrupted:
        return _stopped(run)
    status = run.status
    if status["state"] == "stopped":
        _say(f"stopped at step {status['step']} of {status['total']} by FROSSL_MAX_STEPS")
    verdict, looks = status.get("verdict", {}), [look for look in run.diagnostics if "verdict" in look]
    if verdict.get("kind") not in (None, "warming up"):
        advice = f"; {verdict['advice']}" if verdict["advice"] else ""
        cost = f" (diagnostics took {looks[-1]['share']:.1%} of the time)" if looks else ""
        _say(f"verdict: {verdict['kind']}: {verdict['reason']}{advice}{cost}")
    _say(f"run folder: {run.path}")
    if not quiet:
        _say(f"did it learn? frossl knn {shlex.quote(str(run.path))} (takes folder names as labels)")
    return 0


def _stopped(run: Run) -> int:
    from frossl.cli import INTERRUPTED

    status = run.status
    _say(
        f"stopped at step {status['step']} of {status['total']}, with a checkpoint; "
        f"go on with: frossl resume {shlex.quote(str(run.path))}"
    )
    return INTERRUPTED


TITLES = {"pixels": "raw pixels", "untrained": "untrained network", "trained": "trained network"}


def _table(comparisons: dict[str, Comparison], *, to_stderr: bool) -> None:
    """A row for each encoder; a protocol is a column, or a line of its own where there are many."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="accuracy in percent (95% interval)", title_justify="left")
    table.add_column("")
    for comparison in comparisons.values():
        table.add_column(comparison.protocol, justify="right")
    rows = dict.fromkeys(row for comparison in comparisons.values() for row in comparison.scores)
    for row in rows:
        cells = [_figure(c.scores[row]) if row in c.scores else "" for c in comparisons.values()]
        table.add_row(TITLES.get(row, row), *cells, style="bold" if row == "trained" else None)
    Console(stderr=to_stderr).print(table)
    _say(next(iter(comparisons.values())).note, to_stderr=to_stderr)


def _figure(score: Score) -> str:
    """`47.1 (44.0–50.2)`; over draws, their deviation too; with many classes, the share of the first five."""
    low, high = score.interval
    drawn = f" ± {score.deviation:.1f}" if score.draws > 1 else ""
    five = f" top-5 {score.top5:.1f}" if score.top5 is not None else ""
    return f"{score.percent:.1f}{drawn} ({low:.1f}–{high:.1f}){five}"


def _say(text: str, *, to_stderr: bool = False) -> None:
    typer.echo(text, err=to_stderr)


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json_.dumps(value, ensure_ascii=False))
