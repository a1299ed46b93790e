"""One image file -> uint8 pixels."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

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


def decode(path: Path, size: int) -> Tensor:
    """uint8 (3, size, size): upright, RGB, the shorter side scaled to size, the central square."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.simplefilter("ignore", UserWarning)  # damaged EXIF data and the like
            with _opened(path) as image:
                image.draft("RGB", (2 * size, 2 * size))  # JPEG: decode no more pixels than needed
                upright = ImageOps.exif_transpose(image).convert("RGB")
                square = ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC)
    except Exception as error:  # hostile files make Pillow raise almost anything
        raise BadFile(f"{type(error).__name__}: {error}") from None
    return torch.from_numpy(np.asarray(square).copy()).permute(2, 0, 1)
