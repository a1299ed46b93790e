"""The command that uses an encoder: features of images in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frossl.cli.common import Json, Quiet, Root, app, print_json, say, several

if TYPE_CHECKING:
    from frossl.api import Embedded


@app.command(epilog="Example: frossl embed runs/photos photos --out photos.parquet --duplicates 0.99")
def embed(
    run: Annotated[str, typer.Argument(help="A run folder, or an encoder that was exported")],
    out: Annotated[str, typer.Option(help="A new file: .parquet, .npy or .csv")],
    data: Annotated[
        str | None,
        typer.Argument(help="A folder, list, archive or array of images, or a name (default: the run's own)"),
    ] = None,
    root: Root = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images of one forward pass (default: by their size)")
    ] = None,
    processes: Annotated[int, typer.Option(help="So many processes of one thread each")] = 1,
    duplicates: Annotated[
        float | None, typer.Option(help="List pairs at or above this cosine, such as 0.99")
    ] = None,
    outliers: Annotated[int | None, typer.Option(help="List so many images that are near no other")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is already there")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Features of every image, with its name. What was ended goes on with the same command."""
    from frossl import api

    found = api.embed(
        run,
        data,
        out=out,
        root=root,
        batch_size=batch_size,
        processes=processes,
        duplicates=duplicates,
        outliers=outliers,
        overwrite=overwrite,
        quiet=quiet,
    )
    _tell(found, to_stderr=json)
    if json:
        print_json({"run": run, **found.to_json()})
    return 0


def _tell(found: Embedded, *, to_stderr: bool) -> None:
    size = found.path.stat().st_size / 1e6
    speed = f", {found.rate:,.0f} images a second" if found.kept < found.images else ""
    say(
        f"{found.images:,} images, {found.features} features each, in {found.seconds:.1f} s{speed}: "
        f"{found.path} ({size:,.1f} MB)",
        to_stderr=to_stderr,
    )
    if found.unreadable:
        several(
            f"{len(found.unreadable):,} cannot be read",
            [f"{name!r}: {reason}" for name, reason in found.unreadable.items()],
            to_stderr=to_stderr,
        )
    if found.pairs is not None:
        counts = f"pairs {found.pairs:,}, groups {found.groups:,}"
        say(f"near-duplicates ({counts}): {found.beside['duplicates']}", to_stderr=to_stderr)
    if "outliers" in found.beside:
        say(f"outliers: {found.beside['outliers']}", to_stderr=to_stderr)
