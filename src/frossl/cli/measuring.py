"""Commands that measure: is it any good?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frossl.cli.common import Json, Quiet, Root, RunArgument, Test, app, figure, print_json, say, table

if TYPE_CHECKING:
    from frossl.api import Comparison

OtherData = Annotated[str | None, typer.Option("--data", help="Other images than it was trained on")]
Against = Annotated[
    list[str] | None, typer.Option(help="A run, a name of timm, or NAME=FILE of weights; may be repeated")
]
Step = Annotated[int | None, typer.Option(help="This checkpoint of the run, not its end")]


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
    table(found, to_stderr=json)
    if json:
        print_json({"run": run, **{name: comparison.to_json() for name, comparison in found.items()}})
    return 0


@app.command(epilog="Example: frossl checkpoints runs/photos")
def checkpoints(run: RunArgument, json: Json = False) -> int:
    """Which checkpoint is best? Neighbours where there are labels, RankMe without."""
    from rich.table import Table

    from frossl import api
    from frossl.live import Patient

    found = api.checkpoints(run)
    shown = Table(title="checkpoints", title_justify="left")
    for title in ("step", "kNN, k 20", "RankMe", "effective rank"):
        shown.add_column(title, justify="right")
    for saved in found.saved:
        marks = ("*" if saved == found.best_by_labels else "", "*" if saved == found.best_without else "")
        accuracy = f"{figure(saved.knn)}{marks[0]}" if found.labelled else "no labels"
        shown.add_row(str(saved.step), accuracy, f"{saved.rankme:.1f}{marks[1]}", f"{saved.rank:.1f}")
    Patient(stderr=json).print(shown)
    said = "the newest is as good as any, as far as can be told"
    if found.best_by_labels is not None and found.separated:
        said = f"step {found.best_by_labels.step} is better than the newest"
    elif not found.labelled:
        said = f"by RankMe alone step {found.best_without.step}, which is a hint and no measurement"
    say(said, to_stderr=json)
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
        print_json(
            {
                "run": run,
                "checkpoints": rows,
                "best_by_labels": best.step if best else None,
                "best_without_labels": found.best_without.step,
                "separated": found.separated,
            }
        )
    return 0
