"""Sources of images: what a loader reads from. None needs labels.

Reading happens in threads of its own, and by numpy: a torch operation there would start a second team of
OpenMP threads, which made every step on two cores 1.6 times slower.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from frossl.data.decode import EXTENSIONS, BadFile, Pixels, decode, short_side
from frossl.errors import InputError
from frossl.types import Batch

KEEP_DECODED = 1 << 30
"""Folders whose decoded images fit in this many bytes are decoded once and kept."""


class Source(Protocol):
    """Images by id; an id is a row of the index."""

    @property
    def size(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def digest(self) -> str:
        """Changes when an id would mean another image."""

    def __len__(self) -> int: ...
    def read(self, ids: Tensor) -> Batch: ...
    def name(self, id: int) -> str:
        """What a person would look for."""

    def bad_files(self) -> dict[str, str]:
        """Files that could not be read so far, with the reason."""


class ArraySource:
    """Images that are already in memory: uint8 (N, C, S, S)."""

    def __init__(self, images: Tensor) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise InputError(f"images are {images.dtype} {tuple(images.shape)}; give uint8 (N, C, H, W)")
        self.images = images
        self.size, self.channels = min(images.shape[-2:]), images.shape[1]
        self.digest = hashlib.sha256(images.contiguous().numpy().tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self.images)

    def read(self, ids: Tensor) -> Batch:
        return Batch(torch.from_numpy(self.images.numpy()[ids.numpy()]), ids)

    def name(self, id: int) -> str:
        return f"image {id}"

    def bad_files(self) -> dict[str, str]:
        return {}


class FolderSource:
    """Image files below a folder, in the order of their relative paths."""

    channels = 3

    def __init__(self, root: Path, paths: Sequence[str], *, size: int) -> None:
        self.root, self.paths, self.size = root, list(paths), size
        self.digest = hashlib.sha256(b"\0".join(os.fsencode(p) for p in self.paths)).hexdigest()
        self._bad: dict[int, str] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
        keep = len(self.paths) * 3 * size * size <= KEEP_DECODED
        self._kept: list[Pixels | None] | None = [None] * len(self.paths) if keep else None

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, ids: Tensor) -> Batch:
        """A file that cannot be read is replaced by the next one in the index, which gives its id too."""
        read = list(self._pool.map(self._first_good, ids.tolist()))
        images, good = zip(*read, strict=True)
        return Batch(torch.from_numpy(np.stack(images)), torch.tensor(good))

    def name(self, id: int) -> str:
        return self.paths[id]

    def bad_files(self) -> dict[str, str]:
        with self._lock:
            return {self.paths[i]: reason for i, reason in sorted(self._bad.items())}

    def _first_good(self, start: int) -> tuple[Pixels, int]:
        for offset in range(len(self.paths)):
            i = (start + offset) % len(self.paths)
            if i in self._bad:
                continue
            if self._kept is not None and (kept := self._kept[i]) is not None:
                return kept, i
            try:
                image = decode(self.root / self.paths[i], self.size)
            except BadFile as bad:
                with self._lock:
                    self._bad[i] = str(bad)
                continue
            if self._kept is not None:
                self._kept[i] = image
            return image, i
        raise InputError(f"none of the {len(self.paths)} files in {self.root} can be read as an image")


def find_images(root: Path) -> list[str]:
    """Relative paths of the image files below `root`, sorted; hidden files and folders are left out."""
    found = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name != "__MACOSX"]
        for name in files:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in EXTENSIONS:
                found.append(os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/"))
    return sorted(found)


def typical_size(root: Path, paths: Sequence[str], *, look_at: int = 64) -> int:
    """The median shorter side of some of the images, from their headers."""
    sides = []
    for path in paths[:: max(1, len(paths) // look_at)]:
        try:
            sides.append(short_side(root / path))
        except BadFile:
            continue
    if not sides:
        raise InputError(f"the files in {root} cannot be read as images; try opening one of them")
    return int(median(sides))
