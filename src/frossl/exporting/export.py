"""Export of encoders for use without frossl. The formats are in `frossl.exporting.formats`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from frossl.errors import FrosslError
from frossl.exporting.card import model_card
from frossl.exporting.encoder import read_encoder
from frossl.exporting.formats import CARD_FILES, FORMATS
from frossl.exporting.formats.record import PREPROCESS_FILE, ExportFormat, Files
from frossl.exporting.spec import PREPROCESS_KEYS, EncoderSpec
from frossl.exporting.tracing import random_images
from frossl.networks import Encoder
from frossl.runs import RunFolder
from frossl.runs.folder import write_atomically
from frossl.runs.json_lines import TEXT
from frossl.types import isolated_rng

MAX_RELATIVE_ERROR = 1e-4
"""Largest difference of an export's features from the encoder's, relative to the largest feature."""


def export_encoder(folder: RunFolder, format: str, out: Path) -> Path:
    """Export the encoder of a run, together with `preprocess.json` and a model card.

    Nothing is written before all files are made in memory, the exported model is loaded from them, and its
    features are compared with those of the encoder.

    Args:
        folder: The run folder.
        format: One of `FORMATS`.
        out: Folder to write into; it is created if needed.

    Returns:
        The file to load, or the folder if the format has several files.

    Raises:
        InputError: If the format cannot hold this network, or needs a package that is not installed.
        FrosslError: If the features differ.
    """
    chosen = FORMATS[format]
    chosen.check_packages()
    encoder, spec = read_encoder(folder.path)
    chosen.check_network(spec)
    preprocess = json.dumps(spec.preprocess, indent=2) + "\n"
    card = chosen.front_matter + model_card(encoder, spec, folder, format)
    files = _convert(chosen, encoder, spec)
    out.mkdir(parents=True, exist_ok=True)
    _write(out / PREPROCESS_FILE, preprocess.encode(**TEXT))  # first: marks the folder as an export
    for name, content in files.items():
        _write(out / name, content)
    _write(out / chosen.card, card.encode(**TEXT))  # last: the export is complete
    return out / chosen.files[0] if len(chosen.files) == 1 else out


def is_export(folder: Path) -> bool:
    """Return whether a folder holds an export, complete or not: `preprocess.json` is written first."""
    try:
        content = json.loads((folder / PREPROCESS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and PREPROCESS_KEYS.keys() <= content.keys()


def is_whole_export(folder: Path) -> bool:
    """Return whether a folder holds a complete export: the model card is written last."""
    return is_export(folder) and any((folder / card).is_file() for card in CARD_FILES)


def _convert(format: ExportFormat, encoder: Encoder, spec: EncoderSpec) -> Files:
    """Return the files of an export, after loading them and comparing with the encoder."""
    with isolated_rng():  # libraries initialize weights before they load them
        files = format.convert(encoder, spec)
        if files.keys() != set(format.files):
            raise FrosslError(f"{format.name} gave {', '.join(files)} as files; report a bug")
        _compare(format, format.load(files, spec), encoder, spec)
    return files


@torch.no_grad()
def _compare(
    format: ExportFormat, model: Callable[[Tensor], Tensor], encoder: Encoder, spec: EncoderSpec
) -> None:
    """Raise unless a model has the encoder's features, at batch sizes that were not traced."""
    for count in (1, 5):
        images = random_images(spec, count)
        expected = encoder(images)
        found = model(encoder.preprocess(images) if format.takes == "preprocessed" else images)
        error = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12))
        if not error <= MAX_RELATIVE_ERROR:
            raise FrosslError(
                f"{format.name} gives other features than the encoder (by {error:.1e}); nothing was written; "
                "report a bug"
            )


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda file: file.write(content))
