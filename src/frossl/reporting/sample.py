"""Sample of the images of a run with their features and a map, so that reports need no torch."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from frossl.errors import InputError
from frossl.runs.folder import write_atomically

MAX_BYTES = 1 << 29
"""Largest total size of the arrays in a file: ten times that of the largest sample."""
MAX_IMAGES = 3000
"""Largest number of images of a sample."""
SHEET_BYTES = 1_500_000
"""Largest size of the thumbnails in a page; larger sheets are shrunk for it."""

DTYPE_KINDS = {"ids": "i", "names": "U", "sheet": "u", "features": "f", "map": "f"}
DTYPE_KINDS |= {"labels": "i", "classes": "U", "clusters": "i"}
"""Kinds of the data types of the arrays, as in `numpy.dtype.kind`."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """Up to 3,000 images with thumbnails, features and their coordinates on a map (`sample.npz`)."""

    ids: Array
    """int64 (M,)"""
    names: Array
    """unicode (M,), relative file names"""
    sheet: Array
    """uint8 (B,): one JPEG of all thumbnails, row by row; image i is in row i // columns."""
    columns: int
    """Number of thumbnails per row of the sheet."""
    side: int
    """Side of a thumbnail in pixels."""
    features: Array
    """float16 (M, F)"""
    map: Array
    """float32 (M, 2)"""
    labels: Array
    """int64 (M,); −1 for images without a label"""
    classes: Array
    """unicode (K,), names of the classes"""
    clusters: Array
    """int64 (M,)"""
    note: str
    """Description of how the map was made."""

    def __post_init__(self) -> None:
        for name, kinds in DTYPE_KINDS.items():
            if getattr(self, name).dtype.kind not in kinds:
                raise InputError(f"{name} of a sample are {getattr(self, name).dtype}; check what wrote it")
        count = len(self.ids)
        if not 1 <= count <= MAX_IMAGES:
            raise InputError(f"a sample of {count} images; give 1 to {MAX_IMAGES:,}")
        for name in ("names", "features", "map", "labels", "clusters"):
            if len(getattr(self, name)) != count:
                raise InputError(
                    f"a sample of {count} images with {len(getattr(self, name))} {name}; check it"
                )
        if self.features.ndim != 2 or self.map.shape != (count, 2):
            raise InputError("features are (M, F) and the map is (M, 2); check the sample")
        if self.labels.max() >= len(self.classes):
            raise InputError(f"label {self.labels.max()} with {len(self.classes)} classes; name every class")
        if self.columns < 1 or self.side < 1:
            raise InputError(f"{self.columns} columns of {self.side} pixels; give at least 1")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def rows(self) -> int:
        """Number of rows of the sheet."""
        return -(-len(self) // self.columns)

    @property
    def labelled(self) -> bool:
        """Whether any image has a label."""
        return bool((self.labels >= 0).any())

    def label(self, i: int) -> str | None:
        """Return the name of the class of image i; None without a label."""
        return str(self.classes[self.labels[i]]) if self.labels[i] >= 0 else None

    def write(self, path: Path) -> None:
        """Write the sample as an .npz file."""
        arrays: dict[str, Any] = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))

    @classmethod
    def read(cls, path: Path) -> Sample:
        """Read a sample; nothing is unpickled.

        Raises:
            InputError: If the file is missing or damaged.
        """
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if sum(member.file_size for member in file.zip.infolist()) > MAX_BYTES:
                    raise InputError(f"it claims more than {MAX_BYTES >> 20} MB")
                arrays = {field.name: file[field.name] for field in fields(cls)}
            return cls(
                **{
                    **arrays,
                    "columns": int(arrays["columns"]),
                    "side": int(arrays["side"]),
                    "note": str(arrays["note"]),
                }
            )
        except FileNotFoundError:
            raise InputError(f"there is no {path.name}; it is written when a run ends") from None
        except (
            Exception
        ) as error:  # zip, zlib, numpy and Python's parser raise different errors for bad bytes
            raise InputError(f"{path.name} is damaged ({error}); make it again") from None

    def page_sheet(self) -> bytes:
        """Return the thumbnails as a JPEG that is small enough for a page."""
        jpeg = self.sheet.tobytes()
        try:
            with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
                if image.size != (self.columns * self.side, self.rows * self.side):
                    raise InputError(f"the thumbnails are {image.size} pixels in all; make sample.npz again")
                image.load()
                side = self.side
                for quality in (75, 60, 45, 30, 20):
                    if len(jpeg) <= SHEET_BYTES:
                        break
                    shrink = max(0.6, math.sqrt(SHEET_BYTES / len(jpeg)))
                    side = min(side, max(16, round(side * shrink)))
                    size = (self.columns * side, self.rows * side)
                    jpeg = encoded(image.resize(size, Image.Resampling.LANCZOS), quality)
        except (OSError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise InputError(f"the thumbnails are damaged ({error}); make sample.npz again") from None
        return jpeg


def encoded(image: Image.Image, quality: int) -> bytes:
    """Return an image as JPEG bytes."""
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=quality)
    return file.getvalue()


def nearest(features: Array, queries: Sequence[int], *, k: int = 6) -> Array:
    """Return the k nearest images of each query by cosine, (Q, k), nearest first, never the query itself."""
    rows = np.nan_to_num(features.astype(np.float32), posinf=0.0, neginf=0.0)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    cosine = rows[list(queries)] @ rows.T
    cosine[np.arange(len(queries)), list(queries)] = -np.inf
    return np.argsort(-cosine, axis=1, kind="stable")[:, : min(k, len(rows) - 1)]


def spread_queries(groups: Array, count: int = 10) -> list[int]:
    """Return indices of `count` images spread evenly over the groups, chosen by position, not by result."""
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    if len(members) > count:
        members = [members[i] for i in np.linspace(0, len(members) - 1, count).round().astype(int)]
    shares = [count // len(members) + (i < count % len(members)) for i in range(len(members))]
    chosen: list[int] = []
    for rows, share in zip(members, shares, strict=True):
        places = (np.arange(share) + 0.5) / share * len(rows)
        chosen += dict.fromkeys(rows[places.astype(int)].tolist())
    return chosen
