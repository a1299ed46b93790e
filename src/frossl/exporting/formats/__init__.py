"""Export formats: one file and one entry of the table for each.

Importing this package does not import torch, because the help of the command line is made from the table. The
files of the formats therefore import torch, and the libraries that they write for, within functions.
"""

from __future__ import annotations

from frossl.exporting.formats import hugging_face, onnx, safetensors, torch_export, torchvision
from frossl.exporting.formats.record import PREPROCESS_FILE, ExportFormat

FORMATS: dict[str, ExportFormat] = {
    format.name: format
    for format in (
        safetensors.FORMAT,
        torchvision.FORMAT,
        onnx.FORMAT,
        torch_export.FORMAT,
        hugging_face.FORMAT,
    )
}
"""Export formats by the value of `--format`; help, errors, model cards and the table of the docs use it."""

ENCODER_FILES = tuple(format.encoder_file for format in FORMATS.values() if format.encoder_file)
"""Files that `load_encoder` looks for in a folder."""

CARD_FILES = tuple(dict.fromkeys(format.card for format in FORMATS.values()))
"""Names of the model cards of exports."""

FORMER_FILES = ("encoder.onnx.data",)
"""Names of files that earlier versions may have written beside an export."""

EXPORT_FILES = (
    PREPROCESS_FILE,
    *FORMER_FILES,
    *CARD_FILES,
    *dict.fromkeys(name for format in FORMATS.values() for name in format.files),
)
"""Names of all files that exports consist of."""
