"""What the commands share: the app, options, and how results are printed."""

from __future__ import annotations

import json as json_
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from frossl.api import Comparison
    from frossl.config import Config
    from frossl.evaluation import Score

app = typer.Typer(
    name="frossl",
    help="Turn a folder of unlabelled images into an encoder by self-supervised learning.",
    epilog="Start with: frossl demo; then: frossl pretrain photos --budget 30m",
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


RunArgument = Annotated[str, typer.Argument(help="A run folder")]
DataArgument = Annotated[str, typer.Argument(help="A folder, list, archive or array of images, or a name")]
Out = Annotated[str | None, typer.Option(help="Where the run is kept (default: runs/NAME)")]
Devices = Annotated[int | None, typer.Option(help="Processes on each node, one for each device")]
Nodes = Annotated[int | None, typer.Option(help="Nodes; start the same command on each (docs/scale.md)")]
Root = Annotated[str | None, typer.Option(help="The folder of a data set given by its name")]
Fraction = Annotated[float | None, typer.Option(help="Share of every class that is learned from")]
MaxBad = Annotated[float | None, typer.Option(help="Share of files that may be unreadable (default: 0.01)")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same machine: same weights")]
Test = Annotated[str | None, typer.Option(help="Images to be tested on, in class folders")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but results and errors")]
Json = Annotated[bool, typer.Option("--json", help="End standard output with one JSON object")]


def recipe_names(incomplete: str) -> list[str]:
    """For completion in a shell: from the files, as importing what trains would take seconds."""
    from importlib import resources

    names = [file.name.removesuffix(".toml") for file in (resources.files("frossl") / "recipes").iterdir()]
    return sorted(name for name in names if name.startswith(incomplete))


ConfigFile = Annotated[Path | None, typer.Option(help="Start from this TOML file")]
RecipeName = Annotated[
    str | None,
    typer.Option(help="Start from this recipe; see `frossl list recipes`", autocompletion=recipe_names),
]


def starting_config(
    path: Path | None, recipe: str | None, method: str | None, views: int | None = None
) -> Config | None:
    """Where a run starts from, for a method and a number of views; None for the default recipe."""
    from frossl import api
    from frossl.config import Config
    from frossl.errors import InputError
    from frossl.methods import METHODS

    if path is not None and recipe is not None:
        raise InputError("--config and --recipe are two places to start from; give one")
    if recipe is not None:
        return api.recipe(recipe, method=method, views=views)
    if path is None:
        return None
    if not path.is_file():
        raise InputError(f"there is no file {path}; check --config")
    return Config.read(path, method=method, views=views, known=METHODS)


TITLES = {
    "pixels": "raw pixels",
    "colors": "color statistics",
    "untrained": "untrained network",
    "trained": "trained network",
}


def table(comparisons: dict[str, Comparison], *, to_stderr: bool) -> None:
    """A row for each encoder; a protocol is a column, or a line of its own where there are many."""
    from rich.table import Table
    from rich.text import Text  # a name may hold what rich takes for markup

    from frossl.live import Patient

    table = Table(title="accuracy in percent (95% interval)", title_justify="left")
    table.add_column("")
    for comparison in comparisons.values():
        table.add_column(Text(comparison.protocol), justify="right")
    rows = dict.fromkeys(row for comparison in comparisons.values() for row in comparison.scores)
    for row in rows:
        cells = [figure(c.scores[row]) if row in c.scores else "" for c in comparisons.values()]
        table.add_row(Text(TITLES.get(row, row)), *cells, style="bold" if row == "trained" else None)
    Patient(stderr=to_stderr).print(table)
    say(next(iter(comparisons.values())).note, to_stderr=to_stderr)


def figure(score: Score) -> str:
    """`47.1 (44.0–50.2)`; over draws, their deviation too; with many classes, the share of the first five."""
    low, high = score.interval
    drawn = f" ± {score.deviation:.1f}" if score.draws > 1 else ""
    five = f" top-5 {score.top5:.1f}" if score.top5 is not None else ""
    return f"{score.percent:.1f}{drawn} ({low:.1f}–{high:.1f}){five}"


def say(text: str, *, to_stderr: bool = False) -> None:
    """One line, whatever names it holds."""
    from frossl.live.words import harmless

    typer.echo(harmless(text), err=to_stderr)


def quoted(path: str | Path) -> str:
    """A path as a shell takes it, in a command that is to be repeated."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def print_json(value: dict[str, Any]) -> None:
    from frossl.live.words import harmless

    text = json_.dumps(value, ensure_ascii=False)
    typer.echo(text if text == harmless(text) else json_.dumps(value))


def several(title: str, lines: list[str], *, to_stderr: bool) -> None:
    """A few of them; JSON has all."""
    say(title, to_stderr=to_stderr)
    for line in lines[:10]:
        say(f"  {line}", to_stderr=to_stderr)
    if len(lines) > 10:
        say(f"  and {len(lines) - 10:,} more (--json names all)", to_stderr=to_stderr)
