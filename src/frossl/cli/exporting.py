"""What takes an encoder elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from frossl.cli.common import Json, RunArgument, app, print_json, say

FORMATS = ("safetensors", "torchvision", "onnx", "torch-export", "hf")


def _formats(incomplete: str) -> list[str]:
    return [name for name in FORMATS if name.startswith(incomplete)]


@app.command(epilog="Example: frossl export runs/photos --format onnx --out photos-onnx")
def export(
    run: RunArgument,
    format: Annotated[
        str, typer.Option(help=f"One of {', '.join(FORMATS)}", autocompletion=_formats)
    ] = "safetensors",
    out: Annotated[str | None, typer.Option(help="A folder (default: RUN/export/FORMAT)")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of an earlier export")
    ] = False,
    json: Json = False,
) -> None:
    """Write the encoder of a run for timm, torchvision, onnxruntime, torch.export or the Hugging Face hub.

    It goes into a folder with its model card and preprocess.json, and is compared with the encoder before the
    command ends.
    """
    from frossl import api

    written = api.export(run, format=format, out=out, overwrite=overwrite)
    if json:
        print_json({"format": format, "path": str(written)})
    else:
        say(str(written))
