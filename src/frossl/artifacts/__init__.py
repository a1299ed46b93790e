"""What a run leaves for others: encoder files, model cards, exports."""

from frossl.artifacts.design import Design
from frossl.artifacts.encoder import (
    from_bytes,
    load_encoder,
    read_encoder,
    save_encoder,
    to_bytes,
    write_card,
    write_encoder,
)
from frossl.artifacts.export import FORMATS, export_encoder, is_export, is_whole_export

__all__ = [
    "FORMATS",
    "Design",
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
