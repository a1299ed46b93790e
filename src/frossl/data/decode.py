"""One image file -> uint8 pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

Pixels = NDArray[np.uint8]

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})


class BadFile(Exception):
    """A file that cannot be read as an image; the message says why."""


def _opened(path: Path) -> Image.Image:
    if not path.is_file():
        raise BadFile("not a regular file")
    return Image.open(path)


def short_side(path: Path) -> int:
    """Pixels along the shorter side, from the header alone."""
    try:
        with _opened(path) as image:
            return min(image.size)
    except Exception as error:  # hostile files make Pillow raise almost anything
        raise BadFile(f"{type(error).__name__}: {error}") from None


def decode(path: Path, size: int) -> Pixels:
    """uint8 (3, size, size): upright, RGB, the shorter side scaled to size, the central square."""
    try:
        with _opened(path) as image:
            if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
                raise BadFile(f"{image.width} × {image.height} pixels are too many")
            image.draft("RGB", (2 * size, 2 * size))  # JPEG: decode no more pixels than needed
            upright = _in_color(ImageOps.exif_transpose(image))
            square = ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC)
    except BadFile:
        raise
    except Exception as error:  # hostile files make Pillow raise almost anything
        raise BadFile(f"{type(error).__name__}: {error}") from None
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


def _in_color(image: Image.Image) -> Image.Image:
    """RGB; 16 bits are scaled to 8, which Pillow would clip."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    return image.convert("RGB")
