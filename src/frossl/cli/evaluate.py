"""Commands that evaluate an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frossl.cli.common import (
    Json,
    Quiet,
    Root,
    RunArgument,
    Test,
    app,
    format_score,
    one_spelling,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from frossl import Evaluations

OtherData = Annotated[
    str | None, typer.Option("--data", help="Images to evaluate on (default: those of the run)")
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        help="Encoder to compare with: a run, a timm model, or MODEL=FILE of weights; may be repeated"
    ),
]
Step = Annotated[int | None, typer.Option(help="Step of the checkpoint to evaluate (default: the last)")]


@app.command(epilog="Example: frossl knn runs/photos --against resnet18=resnet18.safetensors")
def knn(
    run: RunArgument,
    k: Annotated[
        list[int] | None, typer.Option(help="Number of neighbours (default: 20 and 200); may be repeated")
    ] = None,
    crops: Annotated[
        int | None,
        typer.Option(help="Number of random crops to average features over (default: the whole image)"),
    ] = None,
    data: OtherData = None,
    root: Root = None,
    test: Test = None,
    against: Against = None,
    step: Step = None,
    json: Json = False,
) -> int:
    """Evaluate with k nearest neighbours, and compare with raw pixels and the untrained network."""
    import frossl

    options = frossl.EvalOptions(data=data, root=root, test=test, against=against or (), step=step)
    found = frossl.measure(run, [frossl.KNN(n) for n in k] if k else None, crops=crops, **options)
    return _print_evaluations(run, found, json=json)


@app.command(epilog="Example: frossl probe runs/photos --paper")
def probe(
    run: RunArgument,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="Use the paper's protocol: 100 epochs with crops and flips; takes minutes"
        ),
    ] = False,
    per_class: Annotated[
        list[int] | None,
        typer.Option(help="Number of labels per class (default: 1, 5, 10, 50 and all); may be repeated"),
    ] = None,
    labels: Annotated[list[int] | None, typer.Option(hidden=True, help="Former name of --per-class")] = None,
    epochs: Annotated[int, typer.Option(help="Number of epochs, with --paper")] = 100,
    lr: Annotated[float, typer.Option(help="Learning rate, with --paper")] = 0.3,
    data: OtherData = None,
    root: Root = None,
    test: Test = None,
    against: Against = None,
    step: Step = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Evaluate with a linear classifier on the features, trained with few labels and with all."""
    import frossl

    options = frossl.EvalOptions(data=data, root=root, test=test, against=against or (), step=step)
    counts = one_spelling(per_class or None, labels or None, "--per-class", "--labels")
    if paper:
        found = frossl.measure(run, [frossl.SGDProbe(epochs, lr)], quiet=quiet, **options)
    else:
        found = frossl.probe(run, per_class=counts, quiet=quiet, **options)
    return _print_evaluations(run, found, json=json)


@app.command(epilog="Example: frossl finetune runs/photos --fraction 0.1")
def finetune(
    run: RunArgument,
    fraction: Annotated[
        float | None, typer.Option(help="Share of the labels to use, such as 0.01 or 0.1 (default: 1)")
    ] = None,
    labels: Annotated[float | None, typer.Option(hidden=True, help="Former name of --fraction")] = None,
    epochs: Annotated[int, typer.Option(help="Number of epochs")] = 30,
    lr: Annotated[float, typer.Option(help="Peak learning rate of AdamW")] = 1e-3,
    layer_decay: Annotated[
        float, typer.Option(help="Learning rate of each layer relative to the next one")
    ] = 1.0,
    mixup: Annotated[float, typer.Option(help="Mixup strength, such as 0.2; 0 for none")] = 0.0,
    seed: Annotated[int, typer.Option(help="Random seed of order, crops and mixup")] = 0,
    data: OtherData = None,
    root: Root = None,
    test: Test = None,
    against: Against = None,
    step: Step = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Fine-tune all layers with labels, from the run and from the untrained network."""
    import frossl

    options = frossl.EvalOptions(data=data, root=root, test=test, against=against or (), step=step)
    share = one_spelling(fraction, labels, "--fraction", "--labels")
    protocol = frossl.FineTune(
        fraction=1.0 if share is None else share,
        epochs=epochs,
        lr=lr,
        layer_decay=layer_decay,
        mixup=mixup,
        seed=seed,
    )
    return _print_evaluations(run, frossl.measure(run, [protocol], quiet=quiet, **options), json=json)


def _print_evaluations(run: str, found: Evaluations, *, json: bool) -> int:
    print_table(found, to_stderr=json)
    if json:
        print_json({"run": run, **found.to_json()})
    return 0


@app.command(epilog="Example: frossl checkpoints runs/photos")
def checkpoints(run: RunArgument, json: Json = False) -> int:
    """Compare the checkpoints of a run: by nearest neighbours with labels, by RankMe without."""
    from rich.table import Table

    import frossl
    from frossl.live import NonBlockingConsole

    found = frossl.checkpoints(run)
    shown = Table(title="checkpoints", title_justify="left")
    for title in ("step", frossl.KNN().name, "RankMe", "effective rank"):
        shown.add_column(title, justify="right")
    for saved in found.saved:
        marks = ("*" if saved == found.best_by_labels else "", "*" if saved == found.best_without else "")
        accuracy = f"{format_score(saved.knn)}{marks[0]}" if found.labelled else "no labels"
        shown.add_row(str(saved.step), accuracy, f"{saved.rankme:.1f}{marks[1]}", f"{saved.rank:.1f}")
    NonBlockingConsole(stderr=json).print(shown)
    summary = "no checkpoint is measurably better than the newest"
    if found.best_by_labels is not None and found.separated:
        summary = f"step {found.best_by_labels.step} is better than the newest"
    elif not found.labelled:
        summary = f"step {found.best_without.step} by RankMe alone, which is a hint and not a measurement"
    say(summary, to_stderr=json)
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
