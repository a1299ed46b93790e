"""Commands that read run folders: HTML reports, figures, comparisons, and the live display."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from frossl.cli.common import Json, RunArgument, app, print_json, say

RunArguments = Annotated[list[str], typer.Argument(help="Run folders")]


@app.command(epilog="Example: frossl report runs/a runs/b --out comparison.html")
def report(
    runs: RunArguments,
    out: Annotated[
        str | None,
        typer.Option(
            help="HTML file to write (default: RUN/report.html, or comparison.html for several runs)"
        ),
    ] = None,
) -> int:
    """Write an HTML report of one run, or a comparison of several, as a single offline file."""
    import frossl

    say(f"report: {frossl.report(runs, out=out)}")
    return 0


@app.command(epilog="Example: frossl watch runs/photos")
def watch(
    run: RunArgument,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit")] = False,
) -> int:
    """Show a run live from another terminal until it ends; Ctrl-C does not stop the run."""
    import frossl

    frossl.watch(run, once=once)
    return 0


@app.command(epilog="Example: frossl spectrum runs/a runs/b --out spectrum.png")
def spectrum(
    runs: RunArguments,
    out: Annotated[str, typer.Option(help="Figure to write, as .png and .svg")] = "spectrum.png",
    features: Annotated[
        bool, typer.Option("--features", help="Use the features, not the projections")
    ] = False,
    relative: Annotated[
        bool,
        typer.Option("--relative", help="Divide by their sum, as many objectives are invariant to scale"),
    ] = False,
    json: Json = False,
) -> int:
    """Plot the eigenvalues of the embeddings over training, a panel for each run, as in the paper."""
    import frossl

    found = frossl.spectrum(runs, out=out, of="features" if features else "z", relative=relative)
    for one in found:
        summary = f"saturates at step {one.saturation}" if one.saturation else "has not saturated"
        count = len(one.eigenvalues[0])
        say(f"{one.name}: {summary}; λ1/λ{count} = {one.condition:.3g} at the end", to_stderr=json)
    say(f"spectrum: {Path(out).with_suffix('.png')}, {Path(out).with_suffix('.svg')}", to_stderr=json)
    if json:
        print_json({"runs": [one.to_json() for one in found]})
    return 0


@app.command(epilog="Example: frossl compare runs/a runs/b --target 40 --out compare.png")
def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders; runs that differ only in their seed count as one")
    ],
    target: Annotated[
        float | None, typer.Option(help="Online accuracy in percent for which to report epochs and minutes")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Figure to write, as .png and .svg")] = None,
    json: Json = False,
) -> int:
    """Compare runs: accuracy with its standard error, epochs and time to a target, cost."""
    from rich.table import Table
    from rich.text import Text  # a name may contain what rich reads as markup

    import frossl
    from frossl.live import NonBlockingConsole

    found = frossl.compare(runs, target=target, out=out)
    table = Table(title=Text(f"{found.protocol}; ± one standard error"), title_justify="left")
    table.add_column("")
    reached = f"to {found.target:g}% online"
    for title in ("percent", "seeds", f"epochs {reached}", f"minutes {reached}", "ms per step", "peak GB"):
        table.add_column(title, justify="right")
    for row in found.to_json()["arms"]:
        first, never = row["reached"], "never" if any(row["online"]) else "–"
        table.add_row(
            Text(row["name"]),
            f"{row['percent']:.1f} ± {row['error']:.1f}",
            str(len(row["seeds"])),
            f"{first['epochs']:.1f}" if first else never,
            f"{first['seconds'] / 60:.1f}" if first else never,
            f"{row['step_ms']:.0f}" if row["step_ms"] is not None else "",
            f"{row['memory_gb']:.1f}" if row["memory_gb"] is not None else "",
        )
    NonBlockingConsole(stderr=json).print(table)
    for pair in found.pairs:
        how = "separated" if pair.separated else "not separated"
        line = f"{pair.better} − {pair.other}: {pair.difference:+.1f} ± {pair.error:.1f}, {how}"
        say(line, to_stderr=json)
    say(found.verdict(), to_stderr=json)
    if out is not None:
        say(f"figure: {Path(out).with_suffix('.png')}, {Path(out).with_suffix('.svg')}", to_stderr=json)
    if json:
        print_json(found.to_json())
    return 0
