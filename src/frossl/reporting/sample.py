"""A sample of a run's images with what its encoder makes of them: what a report needs instead of torch."""

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

LARGEST = 1 << 29
"""Bytes of all arrays: ten times what the largest sample takes."""
MOST = 3000
"""Images of a sample, at most."""
SHEET_BYTES = 1_500_000
"""Of the thumbnails in a page, at most: larger ones are made smaller there."""

KINDS = {"ids": "i", "names": "U", "sheet": "u", "features": "f", "map": "f"}
KINDS |= {"labels": "i", "classes": "U", "clusters": "i"}
"""What numpy calls the types of the arrays."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """At most 3,000 images: thumbnails, features, and where they lie on a map."""

    ids: Array
    """int64 (M,)"""
    names: Array
    """unicode (M,), relative file names"""
    sheet: Array
    """uint8 (B,): one JPEG of all thumbnails, row by row; number i is in row i // columns."""
    columns: int
    side: int
    """Pixels of a thumbnail."""
    features: Array
    """float16 (M, F)"""
    map: Array
    """float32 (M, 2)"""
    labels: Array
    """int64 (M,); −1 is none"""
    classes: Array
    """unicode (K,)"""
    clusters: Array
    """int64 (M,)"""
    note: str
    """How the map was made."""

    def __post_init__(self) -> None:
        for name, kinds in KINDS.items():
            if getattr(self, name).dtype.kind not in kinds:
                raise InputError(f"{name} of a sample are {getattr(self, name).dtype}; check what wrote it")
        count = len(self.ids)
        if not 1 <= count <= MOST:
            raise InputError(f"a sample of {count} images; give 1 to {MOST:,}")
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
        return -(-len(self) // self.columns)

    @property
    def labelled(self) -> bool:
        return bool((self.labels >= 0).any())

    def label(self, i: int) -> str | None:
        return str(self.classes[self.labels[i]]) if self.labels[i] >= 0 else None

    def write(self, path: Path) -> None:
        arrays: dict[str, Any] = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))

    @classmethod
    def read(cls, path: Path) -> Sample:
        """Nothing is unpickled; a file that is damaged is an InputError."""
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if sum(member.file_size for member in file.zip.infolist()) > LARGEST:
                    raise InputError(f"it claims more than {LARGEST >> 20} MB")
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
        except Exception as error:  # zip, zlib, numpy and Python's own parser each have errors for bad bytes
            raise InputError(f"{path.name} is damaged ({error}); make it again") from None

    def page_sheet(self) -> bytes:
        """The thumbnails as a JPEG that is small enough for a page."""
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
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=quality)
    return file.getvalue()


def nearest(features: Array, queries: Sequence[int], *, k: int = 6) -> Array:
    """The k images most like each query by cosine, (Q, k), nearest first; never the query itself."""
    rows = np.nan_to_num(features.astype(np.float32), posinf=0.0, neginf=0.0)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    cosine = rows[list(queries)] @ rows.T
    cosine[np.arange(len(queries)), list(queries)] = -np.inf
    return np.argsort(-cosine, axis=1, kind="stable")[:, : min(k, len(rows) - 1)]


def spread_queries(groups: Array, count: int = 10) -> list[int]:
    """Images from all over the groups, by their place in the list: nobody has chosen the best ones."""
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    if len(members) > count:
        members = [members[i] for i in np.linspace(0, len(members) - 1, count).round().astype(int)]
    shares = [count // len(members) + (i < count % len(members)) for i in range(len(members))]
    chosen: list[int] = []
    for rows, share in zip(members, shares, strict=True):
        places = (np.arange(share) + 0.5) / share * len(rows)
        chosen += dict.fromkeys(rows[places.astype(int)].tolist())
    return chosen
