"""Parts shared by the commands: the app, common options, and printing of results."""

from __future__ import annotations

import inspect
import json as json_
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from frossl.options import OPTIONS, Option

if TYPE_CHECKING:
    from frossl import Evaluation
    from frossl.config import Config
    from frossl.evaluation import Score

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

app = typer.Typer(
    name="frossl",
    help="Train image encoders by self-supervised learning on a folder of unlabelled images.",
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
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit"),
    ] = False,
) -> None:
    pass


def option_help(name: str) -> str:
    """Return the help of an option of a run: the docstring of its configuration field."""
    return OPTIONS[name].help.removesuffix(".")


def run_flags(command: F) -> F:
    """Give a command a flag for each option of a run that is not among its own parameters.

    They come before its keyword-only parameters, and reach it as `**options`.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    first = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    last = [p for p in own if p.kind is p.KEYWORD_ONLY]
    names = {p.name for p in own}
    flags = [_flag(option) for option in OPTIONS.values() if option.name not in names]
    command.__signature__ = inspect.Signature([*first, *flags, *last])  # type: ignore[attr-defined]
    return command


def _flag(option: Option) -> inspect.Parameter:
    flag = option.sets.flag or "--" + option.name.replace("_", "-")
    if option.flag_type == bool | None:
        flag += flag.replace("--", "/--no-", 1)
    repeat = "; may be repeated" if option.is_sequence else ""
    given = typer.Option(None, flag, help=option_help(option.name) + repeat)
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=option.flag_type
    )


RunArgument = Annotated[str, typer.Argument(help="Run folder")]
DataArgument = Annotated[
    str, typer.Argument(help="Folder, list, archive or array of images, or name of a data set")
]
Out = Annotated[str | None, typer.Option(help="Run folder to write to (default: runs/NAME)")]
Devices = Annotated[int | None, typer.Option(help=option_help("devices"))]
Nodes = Annotated[int | None, typer.Option(help=option_help("num_nodes"))]
Root = Annotated[str | None, typer.Option(help=option_help("root"))]
Fraction = Annotated[float | None, typer.Option(help=option_help("fraction"))]
MaxBad = Annotated[float | None, typer.Option(help=option_help("max_bad"))]
Seed = Annotated[int | None, typer.Option(help=option_help("seed"))]
Test = Annotated[str | None, typer.Option(help=option_help("test"))]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only results and errors")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of standard output")
]


def recipe_names(incomplete: str) -> list[str]:
    """Complete recipe names in a shell; they are read from the files, as importing torch takes seconds."""
    from importlib import resources

    names = [file.name.removesuffix(".toml") for file in (resources.files("frossl") / "recipes").iterdir()]
    return sorted(name for name in names if name.startswith(incomplete))


ConfigFile = Annotated[Path | None, typer.Option(help="TOML file to start from")]
RecipeName = Annotated[
    str | None,
    typer.Option(help="Recipe to start from; see `frossl list recipes`", autocompletion=recipe_names),
]


def starting_config(
    path: Path | None, recipe: str | None, method: str | None, views: int | None = None
) -> Config | None:
    """Return the configuration that a run starts from.

    Args:
        path: TOML file of --config.
        recipe: Name of --recipe.
        method: Method whose settings are selected.
        views: Number of views whose settings are selected.

    Returns:
        The configuration, or None for the default recipe.

    Raises:
        InputError: If both a file and a recipe are given, or the file does not exist.
    """
    import frossl
    from frossl.config import Config
    from frossl.errors import InputError
    from frossl.methods.own import absolute_method, method_names

    method = None if method is None else absolute_method(method)
    if path is not None and recipe is not None:
        raise InputError("--config and --recipe exclude each other; give one")
    if recipe is not None:
        return frossl.recipe(recipe, method=method, views=views)
    if path is None:
        return None
    if not path.is_file():
        raise InputError(f"there is no file {path}; check --config")
    return Config.read(path, method=method, views=views, known=method_names())


def one_spelling(value: T | None, former: T | None, name: str, former_name: str) -> T | None:
    """Return the value of an option that has a former name; raise `InputError` if both are given."""
    from frossl.errors import InputError

    if value is not None and former is not None:
        raise InputError(f"{former_name} is the former name of {name}; give {name} only")
    return former if value is None else value


ROW_TITLES = {
    "pixels": "raw pixels",
    "colors": "color statistics",
    "untrained": "untrained network",
    "trained": "trained network",
}
"""Titles of the rows of an evaluation."""


def print_table(evaluations: dict[str, Evaluation], *, to_stderr: bool) -> None:
    """Print a table with a row for each encoder and a column for each protocol."""
    from rich.table import Table
    from rich.text import Text  # a name may contain what rich reads as markup

    from frossl.live import NonBlockingConsole

    table = Table(title="accuracy in percent (95% interval)", title_justify="left")
    table.add_column("")
    for evaluation in evaluations.values():
        table.add_column(Text(evaluation.protocol), justify="right")
    rows = dict.fromkeys(row for evaluation in evaluations.values() for row in evaluation.scores)
    for row in rows:
        cells = [format_score(e.scores[row]) if row in e.scores else "" for e in evaluations.values()]
        table.add_row(Text(ROW_TITLES.get(row, row)), *cells, style="bold" if row == "trained" else None)
    NonBlockingConsole(stderr=to_stderr).print(table)
    say(next(iter(evaluations.values())).note, to_stderr=to_stderr)


def format_score(score: Score) -> str:
    """Format a score: `47.1 (44.0–50.2)`, with the deviation over draws and the top-5 accuracy if known."""
    low, high = score.interval
    deviation = f" ± {score.deviation:.1f}" if score.draws > 1 else ""
    top5 = f" top-5 {score.top5:.1f}" if score.top5 is not None else ""
    return f"{score.percent:.1f}{deviation} ({low:.1f}–{high:.1f}){top5}"


def say(text: str, *, to_stderr: bool = False) -> None:
    """Print one line, with control characters escaped."""
    from frossl.text import sanitize

    typer.echo(sanitize(text), err=to_stderr)


def quoted(path: str | Path) -> str:
    """Quote a path for a shell command that the user may copy."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def print_json(value: dict[str, Any]) -> None:
    """Print one line of JSON; non-ASCII text is escaped if it contains control characters."""
    from frossl.text import sanitize

    text = json_.dumps(value, ensure_ascii=False)
    typer.echo(text if text == sanitize(text) else json_.dumps(value))


def say_list(title: str, lines: list[str], *, to_stderr: bool) -> None:
    """Print a title and the first ten lines; `--json` lists all of them."""
    say(title, to_stderr=to_stderr)
    for line in lines[:10]:
        say(f"  {line}", to_stderr=to_stderr)
    if len(lines) > 10:
        say(f"  and {len(lines) - 10:,} more (--json lists all)", to_stderr=to_stderr)
