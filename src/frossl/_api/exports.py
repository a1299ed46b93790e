"""Export the encoder of a run to other formats."""

from __future__ import annotations

from pathlib import Path

from frossl.errors import InputError, unknown
from frossl.exporting import FORMATS, export_encoder, is_export, is_whole_export
from frossl.runs import RunFolder, is_run
from frossl.runs.lock import contents, remove_abandoned


def export(
    run: str | Path,
    *,
    format: str = "safetensors",
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the encoder of a run in a format that works without frossl, and verify what was written.

    Every export is a folder that holds the file or files of the format (see `frossl list formats`),
    `preprocess.json` and a model card. Nothing is written before the exported model was loaded and compared
    with the encoder.

    Args:
        run: Run folder.
        format: Name of a format.
        out: Folder to write; `RUN/export/FORMAT` if None.
        overwrite: Replace an earlier export.

    Returns:
        The file written, or the folder if the format has several files.

    Raises:
        InputError: If the format is unknown, does not support the architecture or needs a package that is not
            installed, `run` is not a run folder, or `out` is in use.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    folder = RunFolder.open(run)
    if not is_run(folder.path):
        raise InputError(f"{run} holds an encoder and no run; give the folder of a run")
    target = folder.path / "export" / format if out is None else Path(out).expanduser().absolute()
    _check_free(target, overwrite=overwrite)
    remove_abandoned(target)
    return export_encoder(folder, format, target)


def _check_free(target: Path, *, overwrite: bool) -> None:
    """Raise `InputError` unless a folder is new, empty, an incomplete export, or one to overwrite."""
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; give a folder")
    if not contents(target):
        return
    if not is_export(target):
        raise InputError(f"{target} is not empty and not an export; choose another --out")
    if is_whole_export(target) and not overwrite:
        raise InputError(f"{target} holds an export; choose another --out, or replace it with --overwrite")
