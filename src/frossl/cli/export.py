"""Command that exports an encoder."""

from __future__ import annotations

from typing import Annotated

import typer

from frossl.cli.common import Json, RunArgument, app, print_json, say
from frossl.exporting.formats import FORMATS


def _formats(incomplete: str) -> list[str]:
    return [name for name in FORMATS if name.startswith(incomplete)]


@app.command(epilog="Example: frossl export runs/photos --format onnx --out photos-onnx")
def export(
    run: RunArgument,
    format: Annotated[
        str,
        typer.Option(
            help=f"Format: {', '.join(FORMATS)}; see `frossl list formats`", autocompletion=_formats
        ),
    ] = "safetensors",
    out: Annotated[str | None, typer.Option(help="Folder to write to (default: RUN/export/FORMAT)")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export")] = False,
    json: Json = False,
) -> None:
    """Export the encoder of a run for use without frossl.

    The folder also gets a model card and preprocess.json. The result is compared with the encoder before it
    is written.
    """
    import frossl

    written = frossl.export(run, format=format, out=out, overwrite=overwrite)
    if json:
        print_json({"format": format, "path": str(written)})
    else:
        say(str(written))
