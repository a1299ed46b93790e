"""Which images are exact copies of each other, by digests of their contents: the bytes of files, else pixels.

Only images whose contents have the same length are read. Digests of files are kept in the user's cache, by
what tells that a file is still the same: its path, size and modification time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frossl.data.decode import BadFile
from frossl.data.files import STAMP, Files
from frossl.data.kept import keep_arrays, kept_arrays
from frossl.data.parts import cache_root
from frossl.data.sources import FileSource, Source

WIDTH = 16
"""Bytes of a digest."""
BLOCK = 64
"""Images that a thread takes at a time: to hand over one costs more than to hash a small one."""


def copies_within(*parts: tuple[Source, Tensor]) -> list[Tensor]:
    """For each source and its ids (n,), numbers (n,): equal for exact copies, in the same source or another,
    and different for all others. A file that cannot be read is a copy of none."""
    sizes = [_sizes(source, ids) for source, ids in parts]
    if any(size is None for size in sizes):  # any may be as long as those
        sizes = [np.zeros(len(ids), np.int64) for _, ids in parts]
    lengths = np.concatenate([size for size in sizes if size is not None])
    _, place, count = np.unique(lengths, return_inverse=True, return_counts=True)
    asked = np.split(count[place] > 1, np.cumsum([len(ids) for _, ids in parts])[:-1])
    number, first = 0, dict[bytes, int]()
    found = []
    for (source, ids), same_length in zip(parts, asked, strict=True):
        numbers = np.arange(number, number + len(ids))
        rows = np.flatnonzero(same_length)
        for row, digest in zip(rows.tolist(), content_digests(source, ids[rows].tolist()), strict=True):
            if digest is not None:
                numbers[row] = first.setdefault(digest, number + row)
        number += len(ids)
        found.append(torch.from_numpy(numbers))
    return found


def content_digests(source: Source, ids: Sequence[int]) -> list[bytes | None]:
    """Of each image; None where it cannot be read."""
    if not isinstance(source, FileSource):
        return _computed(source, ids)
    files, kept = source.files, _Kept(source.files)
    stamps = [files.stamp(i) for i in ids]
    found = [kept.known.get(stamp) if stamp else None for stamp in stamps]
    rows = [row for row, digest in enumerate(found) if digest is None]
    for row, digest in zip(rows, _computed(source, [ids[row] for row in rows]), strict=True):
        found[row] = digest
        if (stamp := stamps[row]) is not None and digest is not None:
            kept.fresh[stamp] = digest
    kept.write()
    return found


class _Kept:
    """Digests of files by their stamps, in the user's cache."""

    def __init__(self, files: Files) -> None:
        name = hashlib.sha256(files.place.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self.path, self.count = cache_root() / "index" / f"{name}.digests", len(files.names)
        self.known, self.fresh = dict[bytes, bytes](), dict[bytes, bytes]()
        arrays = kept_arrays(self.path, [np.uint8, np.uint8])
        if arrays is not None and len(arrays[0]) * WIDTH == len(arrays[1]) * STAMP:
            stamps, digests = _pieces(arrays[0], STAMP), _pieces(arrays[1], WIDTH)
            self.known = dict(zip(stamps, digests, strict=True))

    def write(self) -> None:
        """Nothing where nothing is new; without the old ones where most of them are of files that changed."""
        if self.fresh:
            known = self.fresh if len(self.known) > 4 * self.count else self.known | self.fresh
            keep_arrays(
                self.path, [np.frombuffer(b"".join(part), np.uint8) for part in (known, known.values())]
            )


def _pieces(array: NDArray[np.uint8], length: int) -> Iterator[bytes]:
    whole = bytes(array)
    return (whole[i : i + length] for i in range(0, len(whole), length))


def content_digest(source: Source, id: int) -> bytes | None:
    """Of one image; None where it cannot be read."""
    try:
        return hashlib.blake2b(source.content(id), digest_size=WIDTH).digest()
    except BadFile:
        return None


def _computed(source: Source, ids: Sequence[int]) -> list[bytes | None]:
    def some(start: int) -> list[bytes | None]:
        return [content_digest(source, id) for id in ids[start : start + BLOCK]]

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [digest for block in pool.map(some, range(0, len(ids), BLOCK)) for digest in block]


def _sizes(source: Source, ids: Tensor) -> NDArray[np.int64] | None:
    """How long each image's content is; None where only reading it would tell."""
    if isinstance(source, FileSource):
        sizes = source.files.sizes
        return None if sizes is None else sizes[ids.numpy()]
    return np.full(len(ids), len(source.content(int(ids[0]))) if len(ids) else 0)
