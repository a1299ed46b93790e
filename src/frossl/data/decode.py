"""The bytes of one image file -> uint8 pixels.

JPEG by simplejpeg (libjpeg-turbo, decoded at a smaller scale where that is enough) if it is installed;
everything else, and everywhere else, by Pillow. Both give the same pixels (tests: to 2 of 255).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

try:
    import simplejpeg
except ImportError:  # an extra
    simplejpeg = None

Pixels = NDArray[np.uint8]

MOST_PIXELS = 1 << 27
"""Images of more pixels (134 million) are refused by their header, before anything is decoded."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
"""What is opened, whatever a file is called: others run programs (PostScript) or hold no photographs."""

HEADER = 1 << 18
"""Bytes that are searched for a word on which way is up; larger headers are rare."""

Image.init()  # all formats known before threads ask for them


class BadFile(Exception):
    """A file that cannot be read as an image; the message says why."""


def _reason(error: Exception) -> str:
    """The same in every run: Pillow names the place in memory of what it was given."""
    return f"{type(error).__name__}: {re.sub(' ?<_io.BytesIO object at 0x[0-9a-f]+>', '', str(error))}"


def _check(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise BadFile(f"{width} × {height} pixels are too many")


def open_image(file: str | Path | BinaryIO) -> Image.Image:
    """An image of one of the documented formats, its pixels not yet decoded."""
    return Image.open(file, formats=FORMATS)


def short_side(data: bytes) -> int:
    """Pixels along the shorter side, from the header alone."""
    try:
        with open_image(io.BytesIO(data)) as image:
            _check(*image.size)
            return min(image.size)
    except BadFile:
        raise
    except Exception as error:  # hostile files make Pillow raise almost anything
        raise BadFile(_reason(error)) from None


def decode(data: bytes, size: int) -> Pixels:
    """uint8 (3, size, size): upright, RGB, the shorter side scaled to size, the central square."""
    try:
        image = _by_simplejpeg(data, size) if simplejpeg is not None else None
        upright = _by_pillow(data, size) if image is None else image
        square = ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC)
    except BadFile:
        raise
    except Exception as error:  # hostile files make decoders raise almost anything
        raise BadFile(_reason(error)) from None
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


def _by_simplejpeg(data: bytes, size: int) -> Image.Image | None:
    """None for what it does not decode, or not upright."""
    header = data[:HEADER]
    if not simplejpeg.is_jpeg(data) or b"Exif" in header or b"tiff:Orientation" in header:
        return None
    height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    _check(width, height)
    if space not in ("YCbCr", "RGB", "Gray"):
        return None
    least: dict[str, Any] = {"min_height": 2 * size, "min_width": 2 * size}  # as Pillow's draft mode below
    return Image.fromarray(simplejpeg.decode_jpeg(data, "RGB", **least))


def _by_pillow(data: bytes, size: int) -> Image.Image:
    with open_image(io.BytesIO(data)) as image:
        _check(*image.size)
        image.draft("RGB", (2 * size, 2 * size))  # JPEG: decode no more pixels than needed
        return _in_color(ImageOps.exif_transpose(image))


def _in_color(image: Image.Image) -> Image.Image:
    """RGB; 16 bits are scaled to 8, which Pillow would clip."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    return image.convert("RGB")
