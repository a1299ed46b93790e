"""Encoder files, model cards, and exports to other formats; loaded on first use.

Importing this package does not import torch, so that the command line can read the table of formats.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frossl.exporting.encoder import from_bytes as from_bytes
    from frossl.exporting.encoder import load_encoder as load_encoder
    from frossl.exporting.encoder import read_encoder as read_encoder
    from frossl.exporting.encoder import save_encoder as save_encoder
    from frossl.exporting.encoder import spec_of as spec_of
    from frossl.exporting.encoder import to_bytes as to_bytes
    from frossl.exporting.encoder import write_card as write_card
    from frossl.exporting.encoder import write_encoder as write_encoder
    from frossl.exporting.export import export_encoder as export_encoder
    from frossl.exporting.export import is_export as is_export
    from frossl.exporting.export import is_whole_export as is_whole_export
    from frossl.exporting.formats import EXPORT_FILES as EXPORT_FILES
    from frossl.exporting.formats import FORMATS as FORMATS
    from frossl.exporting.spec import EncoderSpec as EncoderSpec

_HOME = {
    "EXPORT_FILES": "formats",
    "FORMATS": "formats",
    "EncoderSpec": "spec",
    "export_encoder": "export",
    "from_bytes": "encoder",
    "is_export": "export",
    "is_whole_export": "export",
    "load_encoder": "encoder",
    "read_encoder": "encoder",
    "save_encoder": "encoder",
    "spec_of": "encoder",
    "to_bytes": "encoder",
    "write_card": "encoder",
    "write_encoder": "encoder",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'frossl.exporting' has no attribute {name!r}")
    return getattr(import_module(f"frossl.exporting.{_HOME[name]}"), name)
