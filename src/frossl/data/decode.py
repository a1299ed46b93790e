"""Decode image files to uint8 pixels.

JPEG files are decoded by simplejpeg (libjpeg-turbo, at a smaller scale where that is enough) if it is
installed; everything else by Pillow. Both give the same pixels (tests: to 2 of 255).
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
except ImportError:  # an optional dependency
    simplejpeg = None

Pixels = NDArray[np.uint8]

MAX_PIXELS = 1 << 27
"""Largest number of pixels of an image (134 million); larger ones are rejected before they are decoded."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
"""Formats that are opened, whatever the file name: others run programs (PostScript) or are no photographs."""

MAX_ASPECT_RATIO = 4
"""Largest ratio of the sides of a decoded image; the ends of longer ones are cut off.

A batch of both wide and tall images is padded to the square of it, sixteen times the memory of squares.
"""

HEADER_BYTES = 1 << 18
"""Number of bytes that are searched for an orientation tag; larger headers are rare."""

Image.init()  # load all formats before threads need them


class BadFile(Exception):
    """File that cannot be read as an image; the message is the reason."""


def _reason(error: Exception) -> str:
    """Return the message of an error without the memory addresses that Pillow adds, so that every run gives
    the same."""
    return f"{type(error).__name__}: {re.sub(' ?<_io.BytesIO object at 0x[0-9a-f]+>', '', str(error))}"


def _check(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise BadFile(f"{width} × {height} pixels are too many")


def open_image(file: str | Path | BinaryIO) -> Image.Image:
    """Open an image of one of the supported formats without decoding its pixels."""
    return Image.open(file, formats=FORMATS)


def short_side(data: bytes) -> int:
    """Return the pixels along the shorter side of an encoded image, from its header."""
    try:
        with open_image(io.BytesIO(data)) as image:
            _check(*image.size)
            return min(image.size)
    except BadFile:
        raise
    except Exception as error:  # hostile files make Pillow raise almost anything
        raise BadFile(_reason(error)) from None


def decode(data: bytes, size: int) -> Pixels:
    """Decode an image: upright, RGB, its shorter side resized to `size`.

    Args:
        data: Bytes of the encoded image.
        size: Pixels along the shorter side of the result.

    Returns:
        Pixels, uint8 (3, H, W).

    Raises:
        BadFile: If the bytes cannot be decoded.
    """
    try:
        image = _by_simplejpeg(data, size) if simplejpeg is not None else None
        upright = _by_pillow(data, size) if image is None else image
        resized = _resize(upright, size)
    except BadFile:
        raise
    except Exception as error:  # hostile files make decoders raise almost anything
        raise BadFile(_reason(error)) from None
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


def central_square(images: Pixels) -> Pixels:
    """Return the central square of images (…, H, W), as a view."""
    height, width = images.shape[-2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return images[..., top : top + side, left : left + side]


def _resize(image: Image.Image, size: int) -> Image.Image:
    """Scale the shorter side to `size`, without the ends of an image beyond the largest aspect ratio."""
    short = min(image.size)
    width, height = (min(side, MAX_ASPECT_RATIO * short) for side in image.size)
    left, top = (image.width - width) / 2, (image.height - height) / 2
    shape = (round(width * size / short), round(height * size / short))
    return image.resize(shape, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))


def _by_simplejpeg(data: bytes, size: int) -> Image.Image | None:
    """Decode with simplejpeg; None if it does not support the file, or the file may need to be rotated."""
    header = data[:HEADER_BYTES]
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
        return _to_rgb(ImageOps.exif_transpose(image))


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB; 16 bits are scaled to 8, which Pillow would clip."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    return image.convert("RGB")
