"""Sources of images, which a loader reads from. They have no labels.

Images are read in separate threads and with numpy: a torch operation there would start a second team of
OpenMP threads, which made every step on two cores 1.6 times slower.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from frossl.data.decode import BadFile, Pixels, central_square, decode, short_side
from frossl.data.files import Files, SubsetFiles
from frossl.data.mmap import Names
from frossl.errors import InputError, TrainingError
from frossl.machine import cores
from frossl.types import Batch

DECODED_CACHE_BYTES = 1 << 30
"""Largest size of all decoded images at which they are cached in memory."""
TOLERATED_BAD_FILES = 10
"""Number of unreadable files that is always tolerated, however few files there are."""


class Source(Protocol):
    """Images by id; an id is a row of the index."""

    @property
    def size(self) -> int:
        """Pixels along the shorter side of the images."""

    @property
    def channels(self) -> int:
        """Number of channels of the images."""

    @property
    def digest(self) -> str:
        """Digest that changes when an id would mean another image."""

    @property
    def names(self) -> Names | None:
        """File names of the images; None if they have only numbers."""

    @property
    def shard_ends(self) -> tuple[int, ...]:
        """Id after the last image of each archive, if there are several archives; else empty."""

    def __len__(self) -> int:
        """Return the number of images."""

    def read(self, ids: Tensor, *, whole: bool = False) -> Batch:
        """Read images by id; the ids of the batch differ where unreadable files were replaced.

        Args:
            ids: The ids.
            whole: Read images at their own aspect ratios instead of their central squares.
        """

    def name(self, id: int) -> str:
        """Return the name of an image, for messages."""

    def content(self, id: int) -> bytes:
        """Return bytes that are equal for exact copies: those of the file, else the pixels."""

    def subset(self, ids: Tensor) -> Source:
        """Return a source of some of the images, by their sorted ids."""

    def bad_files(self) -> dict[str, str]:
        """Return the files that could not be read so far, with the reason."""


class ArraySource:
    """Source of images in memory.

    Args:
        images: The images, uint8 (N, C, H, W).
    """

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

    def read(self, ids: Tensor, *, whole: bool = False) -> Batch:
        images = self.images.numpy()
        return Batch(torch.from_numpy((images if whole else central_square(images))[ids.numpy()]), ids)

    def name(self, id: int) -> str:
        return f"image {id}"

    def content(self, id: int) -> bytes:
        return self.images[id].numpy().tobytes()

    def subset(self, ids: Tensor) -> ArraySource:
        return ArraySource(self.images[ids])

    def bad_files(self) -> dict[str, str]:
        return {}


class FileSource:
    """Source of files that are decoded and resized when they are read.

    An unreadable file is replaced by the next readable one in the index, whose id the batch then has.

    Args:
        files: The encoded images.
        size: Pixels along the shorter side of the decoded images.
        max_bad: Largest share of unreadable files before a TrainingError is raised; the first ten are always
            tolerated.
        workers: Number of threads that decode; by default one for each core.
        keep: Whether decoded images are cached, up to 1 GB, if their central squares fit into that.
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
        self.files, self.size, self.max_bad, self.workers, self.keep = files, size, max_bad, workers, keep
        self.digest, self.names, self.shard_ends = files.digest, files.names, files.shard_ends
        self.max_bad_files = max(TOLERATED_BAD_FILES, int(max_bad * len(files.names)))
        self._bad: dict[int, str] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers or cores().workers, thread_name_prefix="decode")
        fits = len(self) * 3 * size * size <= DECODED_CACHE_BYTES
        self._cache: list[Pixels | None] | None = [None] * len(self) if keep and fits else None
        self._cached_bytes = 0

    def __len__(self) -> int:
        return len(self.files.names)

    def read(self, ids: Tensor, *, whole: bool = False) -> Batch:
        self._check_bad_files()
        read = list(self._pool.map(self._first_good, ids.tolist()))
        images, good = zip(*read, strict=True)
        return batch_of(images, torch.tensor(good), whole=whole)

    def name(self, id: int) -> str:
        return self.files.names[id]

    def content(self, id: int) -> bytes:
        return self.files.read(id)

    def subset(self, ids: Tensor) -> FileSource:
        chosen, workers = SubsetFiles(self.files, ids.numpy()), self.workers
        return FileSource(chosen, size=self.size, max_bad=self.max_bad, workers=workers, keep=self.keep)

    def bad_files(self) -> dict[str, str]:
        with self._lock:
            bad = {self.files.names[i]: reason for i, reason in sorted(self._bad.items())}
        return {**self.files.unreadable, **bad}

    def _first_good(self, start: int) -> tuple[Pixels, int]:
        for offset in range(len(self)):
            i = (start + offset) % len(self)
            if i in self._bad:
                continue
            if self._cache is not None and (cached := self._cache[i]) is not None:
                return cached, i
            try:
                image = decode(self.files.read(i), self.size)
            except BadFile as bad:
                self._add_bad(i, str(bad))
                continue
            self._keep(i, image)
            return image, i
        raise TrainingError(f"none of the {len(self)} files can be read as an image; look at one of them")

    def _keep(self, i: int, image: Pixels) -> None:
        with self._lock:
            cache = self._cache
            if cache is not None and cache[i] is None and self._cached_bytes < DECODED_CACHE_BYTES:
                cache[i] = image
                self._cached_bytes += image.nbytes

    def _add_bad(self, i: int, reason: str) -> None:
        with self._lock:
            self._bad[i] = reason
        self._check_bad_files()

    def _check_bad_files(self) -> None:
        with self._lock:
            if len(self._bad) <= self.max_bad_files:
                return
            i, reason = next(reversed(self._bad.items()))
            count = len(self._bad)
        raise TrainingError(
            f"{count} of {len(self)} files cannot be read, such as {self.files.names[i]!r} ({reason}); "
            "fix or remove the files in bad_files.txt, or allow more with --max-bad"
        )


def batch_of(images: Sequence[Pixels], ids: Tensor, *, whole: bool) -> Batch:
    """Return a batch of images (C, H, W) or of their central squares, which are of one size."""
    return padded_batch(images if whole else [*map(central_square, images)], ids)


def padded_batch(images: Sequence[Pixels], ids: Tensor) -> Batch:
    """Return a batch of images (C, H, W) of any sizes, padded if these differ.

    One dense tensor serves every kernel and device (docs/decisions.md).
    """
    sizes = np.array([image.shape[-2:] for image in images])
    if (sizes == sizes[0]).all():
        return Batch(torch.from_numpy(np.stack(images)), ids)
    padded = np.zeros((len(images), len(images[0]), *sizes.max(0)), np.uint8)
    for place, image in zip(padded, images, strict=True):
        place[:, : image.shape[1], : image.shape[2]] = image
    return Batch(torch.from_numpy(padded), ids, torch.from_numpy(sizes))


def spread(images: int, count: int) -> Tensor:
    """Return evenly spaced ids, from the first to the last.

    They are computed with integers, as float32 does not represent all integers above 2²⁴.

    Args:
        images: Number of images.
        count: Number of ids; all if there are fewer images.
    """
    count = min(images, count)
    gaps = max(1, count - 1)
    return (2 * torch.arange(count) * (images - 1) + gaps) // (2 * gaps)


def typical_size(files: Files, *, sample: int = 64) -> int:
    """Return the median shorter side of a sample of the images, in pixels, from their headers.

    Args:
        files: The encoded images.
        sample: Number of images in the sample, approximately.
    """
    sides = []
    for i in range(0, len(files.names), max(1, len(files.names) // sample)):
        try:
            sides.append(short_side(files.read(i)))
        except BadFile:
            continue
    if not sides:
        raise InputError(
            f"files such as {files.names[0]!r} cannot be read as images; try opening one of them"
        )
    return int(median(sides))
