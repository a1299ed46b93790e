"""Sources of images: what a loader reads from. None needs labels.

Reading happens in threads of its own, and by numpy: a torch operation there would start a second team of
OpenMP threads, which made every step on two cores 1.6 times slower.
"""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from frossl.data.decode import BadFile, Pixels, decode, short_side
from frossl.data.files import Chosen, Files
from frossl.data.kept import Names
from frossl.errors import InputError, TrainingError
from frossl.types import Batch

KEEP_DECODED = 1 << 30
"""Images that decoded fit in this many bytes are decoded once and kept."""
FORGIVEN = 10
"""So many bad files never stop a run, however few there are in all."""


class Source(Protocol):
    """Images by id; an id is a row of the index."""

    @property
    def size(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def digest(self) -> str:
        """Changes when an id would mean another image."""

    @property
    def names(self) -> Names | None:
        """None where images are only counted."""

    @property
    def shard_ends(self) -> tuple[int, ...]:
        """Where the images of each archive end, if they lie in several."""

    def __len__(self) -> int: ...
    def read(self, ids: Tensor) -> Batch: ...
    def name(self, id: int) -> str:
        """What a person would look for."""

    def content(self, id: int) -> bytes:
        """What two images that are the same have in common."""

    def subset(self, ids: Tensor) -> Source:
        """Some of the images, in this order (sorted)."""

    def bad_files(self) -> dict[str, str]:
        """Files that could not be read so far, with the reason."""


class ArraySource:
    """Images that are already in memory: uint8 (N, C, S, S)."""

    shard_ends = ()
    names = None

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

    def content(self, id: int) -> bytes:
        return self.images[id].numpy().tobytes()

    def subset(self, ids: Tensor) -> ArraySource:
        return ArraySource(self.images[ids])

    def bad_files(self) -> dict[str, str]:
        return {}


class FileSource:
    """Images that are decoded as they are read, scaled and cut to squares of `size`.

    A file that cannot be read is replaced by the next one in the index, which gives its id too.
    """

    channels = 3

    def __init__(
        self,
        files: Files,
        *,
        size: int,
        max_bad: float = 0.01,
        workers: int | None = None,
        keep: bool = True,
    ) -> None:
        """max_bad: the share of files that may be bad; the first ten always may. workers: threads that
        decode, as many as there are cores if not given. keep: decoded images, if all of them fit in 1 GB."""
        self.files, self.size, self.max_bad, self.workers, self.keep = files, size, max_bad, workers, keep
        self.digest, self.names, self.shard_ends = files.digest, files.names, files.shard_ends
        self.most_bad = max(FORGIVEN, int(max_bad * len(files.names)))
        self._bad: dict[int, str] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="decode")
        fits = len(self) * 3 * size * size <= KEEP_DECODED
        self._kept: list[Pixels | None] | None = [None] * len(self) if keep and fits else None

    def __len__(self) -> int:
        return len(self.files.names)

    def read(self, ids: Tensor) -> Batch:
        self._check()
        read = list(self._pool.map(self._first_good, ids.tolist()))
        images, good = zip(*read, strict=True)
        return Batch(torch.from_numpy(np.stack(images)), torch.tensor(good))

    def name(self, id: int) -> str:
        return self.files.names[id]

    def content(self, id: int) -> bytes:
        return self.files.read(id)

    def subset(self, ids: Tensor) -> FileSource:
        chosen, workers = Chosen(self.files, ids.numpy()), self.workers
        return FileSource(chosen, size=self.size, max_bad=self.max_bad, workers=workers, keep=self.keep)

    def bad_files(self) -> dict[str, str]:
        with self._lock:
            bad = {self.files.names[i]: reason for i, reason in sorted(self._bad.items())}
        return {**self.files.closed, **bad}

    def _first_good(self, start: int) -> tuple[Pixels, int]:
        for offset in range(len(self)):
            i = (start + offset) % len(self)
            if i in self._bad:
                continue
            if self._kept is not None and (kept := self._kept[i]) is not None:
                return kept, i
            try:
                image = decode(self.files.read(i), self.size)
            except BadFile as bad:
                self._mark(i, str(bad))
                continue
            if self._kept is not None:
                self._kept[i] = image
            return image, i
        raise TrainingError(f"none of the {len(self)} files can be read as an image; look at one of them")

    def _mark(self, i: int, reason: str) -> None:
        with self._lock:
            self._bad[i] = reason
        self._check()

    def _check(self) -> None:
        with self._lock:
            if len(self._bad) <= self.most_bad:
                return
            i, reason = next(reversed(self._bad.items()))
            count = len(self._bad)
        raise TrainingError(
            f"{count} of {len(self)} files cannot be read, such as {self.files.names[i]!r} ({reason}); "
            "mend or remove what bad_files.txt names, or allow more with --max-bad"
        )


def spread(images: int, count: int) -> Tensor:
    """`count` ids, or all, from the first to the last, as far apart as can be. By whole numbers: float32 has
    none above 2²⁴."""
    count = min(images, count)
    gaps = max(1, count - 1)
    return (2 * torch.arange(count) * (images - 1) + gaps) // (2 * gaps)


def typical_size(files: Files, *, look_at: int = 64) -> int:
    """The median shorter side of some of the images, from their headers."""
    sides = []
    for i in range(0, len(files.names), max(1, len(files.names) // look_at)):
        try:
            sides.append(short_side(files.read(i)))
        except BadFile:
            continue
    if not sides:
        raise InputError(
            f"files such as {files.names[0]!r} cannot be read as images; try opening one of them"
        )
    return int(median(sides))
