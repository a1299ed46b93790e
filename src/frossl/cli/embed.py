"""Command that writes the features of images to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frossl.cli.common import Json, Quiet, Root, app, print_json, say, say_list

if TYPE_CHECKING:
    from frossl import EmbedResult


@app.command(epilog="Example: frossl embed runs/photos photos --out photos.parquet --duplicates 0.99")
def embed(
    run: Annotated[str, typer.Argument(help="Run folder, or folder of an exported encoder")],
    out: Annotated[str, typer.Option(help="New file to write: .parquet, .npy or .csv")],
    data: Annotated[
        str | None,
        typer.Argument(
            help="Folder, list, archive or array of images, or name of a data set (default: that of the run)"
        ),
    ] = None,
    root: Root = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per forward pass (default: by their size)")
    ] = None,
    processes: Annotated[int, typer.Option(help="Number of processes, of one thread each")] = 1,
    duplicates: Annotated[
        float | None, typer.Option(help="Cosine from which pairs are listed as near-duplicates, such as 0.99")
    ] = None,
    outliers: Annotated[
        int | None, typer.Option(help="Number of outliers to list: images far from all others")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Write the features of every image with its name. The same command continues after an interruption."""
    import frossl

    found = frossl.embed(
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
    _say_result(found, to_stderr=json)
    if json:
        print_json({"run": run, **found.to_json()})
    return 0


def _say_result(found: EmbedResult, *, to_stderr: bool) -> None:
    size = found.path.stat().st_size / 1e6
    speed = f", {found.rate:,.0f} images per second" if found.kept < found.images else ""
    say(
        f"{found.images:,} images, {found.features} features each, in {found.seconds:.1f} s{speed}: "
        f"{found.path} ({size:,.1f} MB)",
        to_stderr=to_stderr,
    )
    if found.unreadable:
        say_list(
            f"{len(found.unreadable):,} cannot be read",
            [f"{name!r}: {reason}" for name, reason in found.unreadable.items()],
            to_stderr=to_stderr,
        )
    if found.pairs is not None:
        counts = f"pairs {found.pairs:,}, groups {found.groups:,}"
        say(f"near-duplicates ({counts}): {found.beside['duplicates']}", to_stderr=to_stderr)
    if "outliers" in found.beside:
        say(f"outliers: {found.beside['outliers']}", to_stderr=to_stderr)
