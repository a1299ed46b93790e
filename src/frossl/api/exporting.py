"""The encoder of a run, in the formats of others."""

from __future__ import annotations

from pathlib import Path

from frossl.artifacts import FORMATS, export_encoder
from frossl.errors import InputError, unknown
from frossl.runs import RunFolder


def export(
    run: str | Path,
    *,
    format: str = "safetensors",
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the encoder of a run for those who do not have frossl, and compare what was written with it.

    Every export is a folder with `preprocess.json` and a model card beside what it is for:

    - `safetensors`: the weights with timm's keys, `encoder.safetensors`;
    - `torchvision`: the same for torchvision's ResNets (architectures that frossl did not change);
    - `onnx`: `encoder.onnx`, images (N, C, size, size) as uint8 -> features, any N;
    - `torch-export`: `encoder.pt2`, the same for `torch.export.load`;
    - `hf`: a folder for the hub, which timm loads as `local-dir:FOLDER` too.

    out: the folder; RUN/export/FORMAT, if not given. overwrite: replace files of an earlier export.

    Returns the file, or the folder of `hf`.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    folder = RunFolder.open(run)
    if not (folder.path / "provenance.json").is_file():
        raise InputError(f"{run} holds an encoder and no run; give the folder of a run")
    place = folder.path / "export" / format if out is None else Path(out).expanduser()
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file; give a folder")
    if place.is_dir() and any(place.iterdir()) and not overwrite:
        raise InputError(f"{place} is not empty; choose another --out, or replace its files with --overwrite")
    return export_encoder(folder, format, place)
