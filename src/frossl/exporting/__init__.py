"""Encoder files, model cards, and exports to other formats."""

from frossl.exporting.encoder import (
    from_bytes,
    load_encoder,
    read_encoder,
    save_encoder,
    to_bytes,
    write_card,
    write_encoder,
)
from frossl.exporting.formats import FORMATS, export_encoder, is_export, is_whole_export
from frossl.exporting.spec import EncoderSpec

__all__ = [
    "FORMATS",
    "EncoderSpec",
    "export_encoder",
    "from_bytes",
    "is_export",
    "is_whole_export",
    "load_encoder",
    "read_encoder",
    "save_encoder",
    "to_bytes",
    "write_card",
    "write_encoder",
]
