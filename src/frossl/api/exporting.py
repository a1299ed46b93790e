"""The encoder of a run, in the formats of others."""

from __future__ import annotations

from pathlib import Path

from frossl.artifacts import FORMATS, export_encoder, is_export, is_whole_export
from frossl.errors import InputError, unknown
from frossl.runs import RunFolder, is_run


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

    out: the folder; RUN/export/FORMAT, if not given. overwrite: replace an earlier export.

    Returns the file, or the folder of `hf`.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    folder = RunFolder.open(run)
    if not is_run(folder.path):
        raise InputError(f"{run} holds an encoder and no run; give the folder of a run")
    place = folder.path / "export" / format if out is None else Path(out).expanduser().absolute()
    _check_free(place, overwrite=overwrite)
    return export_encoder(folder, format, place)


def _check_free(place: Path, *, overwrite: bool) -> None:
    """Take an empty folder or one of an earlier export; one that was cut short is gone on with."""
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file; give a folder")
    if not place.is_dir() or not any(place.iterdir()):
        return
    if not is_export(place):
        raise InputError(f"{place} is not empty and not an export; choose another --out")
    if is_whole_export(place) and not overwrite:
        raise InputError(f"{place} holds an export; choose another --out, or replace it with --overwrite")
