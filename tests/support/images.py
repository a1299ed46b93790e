"""Image files of every kind that is read, and some that are refused."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ORIENTATION = 0x0112
"""Exif's number of the tag that says how a photograph is turned."""

KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "jpeg": ("RGB", "JPEG", {}),
    "gray jpeg": ("L", "JPEG", {}),
    "cmyk jpeg": ("CMYK", "JPEG", {}),
    "progressive jpeg": ("RGB", "JPEG", {"progressive": True}),
    "turned jpeg": ("RGB", "JPEG", {"exif": {ORIENTATION: 6}}),
    "png": ("RGB", "PNG", {}),
    "gray png": ("L", "PNG", {}),
    "palette png": ("P", "PNG", {}),
    "rgba png": ("RGBA", "PNG", {}),
    "gray alpha png": ("LA", "PNG", {}),
    "one bit png": ("1", "PNG", {}),
    "sixteen bit png": ("I;16", "PNG", {}),
    "turned png": ("RGB", "PNG", {"exif": {ORIENTATION: 3}}),
    "webp": ("RGB", "WEBP", {}),
    "lossless webp": ("RGBA", "WEBP", {"lossless": True}),
    "bmp": ("RGB", "BMP", {}),
    "palette bmp": ("P", "BMP", {}),
    "tiff": ("RGB", "TIFF", {}),
    "packed tiff": ("RGB", "TIFF", {"compression": "tiff_lzw"}),
    "sixteen bit tiff": ("I;16", "TIFF", {}),
}
"""Kinds of files: Pillow's mode, format and options to save them with."""


def write_image(path: Path, *, width: int, height: int, seed: int = 0, mode: str = "RGB") -> None:
    """Write a smooth random picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(mode).save(path)


def picture(mode: str, *, width: int = 70, height: int = 50) -> Image.Image:
    small = np.random.default_rng(5).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    smooth = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    if mode == "I;16":
        return Image.fromarray(np.asarray(smooth.convert("L")).astype(np.uint16) * 257)
    return smooth.convert(mode)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def sample(kind: str) -> bytes:
    """Return a file of a kind."""
    mode, form, options = KINDS[kind]
    options = dict(options)
    if "exif" in options:
        exif = Image.Exif()
        exif.update(options["exif"])
        options["exif"] = exif
    return encoded(picture(mode), form, **options)


def as_large(kind: str) -> bytes:
    """Return a file whose header says 50,000 × 50,000."""
    data = bytearray(sample(kind))
    if kind == "png":
        data[16:24] = struct.pack(">II", 50_000, 50_000)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif kind == "jpeg":
        place = data.index(b"\xff\xc0")
        data[place + 5 : place + 9] = struct.pack(">HH", 50_000, 50_000)
    else:
        data[18:26] = struct.pack("<ii", 50_000, 50_000)
    return bytes(data)
