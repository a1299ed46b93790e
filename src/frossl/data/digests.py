"""Find exact copies among images by digests of their contents: the bytes of files, else the pixels.

Only images whose contents have the same length are read. Digests of files are stored in the user's cache
under a stamp that changes with the file: its path, size and modification time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frossl.data.decode import BadFile
from frossl.data.files import STAMP_BYTES, Files
from frossl.data.layouts import cache_root
from frossl.data.mmap import load_arrays, save_arrays
from frossl.data.sources import FileSource, Source
from frossl.machine import cores

DIGEST_BYTES = 16
"""Length of a digest."""
BLOCK_SIZE = 64
"""Number of images that a thread takes at a time: submitting one costs more than hashing a small one."""


def copies_within(*parts: tuple[Source, Tensor]) -> list[Tensor]:
    """Group exact copies within and across sources.

    Args:
        *parts: Sources, each with the ids (n,) of the images to compare.

    Returns:
        Group numbers (n,) for each source: equal for exact copies, in the same source or another, and
        different for all others. A file that cannot be read is a copy of no other.
    """
    sizes = [_sizes(source, ids) for source, ids in parts]
    if any(size is None for size in sizes):  # an image of unknown length may be a copy of any
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
    """Return the content digest of each image, from the cache if possible; None for unreadable images.

    Args:
        source: The source of the images.
        ids: Ids of the images.
    """
    if not isinstance(source, FileSource):
        return _compute(source, ids)
    files, cache = source.files, _DigestCache(source.files)
    stamps = [files.stamp(i) for i in ids]
    found = [cache.known.get(stamp) if stamp else None for stamp in stamps]
    rows = [row for row, digest in enumerate(found) if digest is None]
    for row, digest in zip(rows, _compute(source, [ids[row] for row in rows]), strict=True):
        found[row] = digest
        if (stamp := stamps[row]) is not None and digest is not None:
            cache.fresh[stamp] = digest
    cache.write()
    return found


class _DigestCache:
    """Digests of files by their stamps, in the user's cache folder."""

    def __init__(self, files: Files) -> None:
        name = hashlib.sha256(files.cache_key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self.path, self.count = cache_root() / "index" / f"{name}.digests", len(files.names)
        self.known, self.fresh = dict[bytes, bytes](), dict[bytes, bytes]()
        arrays = load_arrays(self.path, [np.uint8, np.uint8])
        if arrays is not None and len(arrays[0]) * DIGEST_BYTES == len(arrays[1]) * STAMP_BYTES:
            stamps, digests = _pieces(arrays[0], STAMP_BYTES), _pieces(arrays[1], DIGEST_BYTES)
            self.known = dict(zip(stamps, digests, strict=True))

    def write(self) -> None:
        """Save new digests; old ones are dropped if most of them belong to files that have changed."""
        if self.fresh:
            known = self.fresh if len(self.known) > 4 * self.count else self.known | self.fresh
            save_arrays(
                self.path, [np.frombuffer(b"".join(part), np.uint8) for part in (known, known.values())]
            )


def _pieces(array: NDArray[np.uint8], length: int) -> Iterator[bytes]:
    whole = bytes(array)
    return (whole[i : i + length] for i in range(0, len(whole), length))


def content_digest(source: Source, id: int) -> bytes | None:
    """Return the content digest of an image; None if it cannot be read."""
    try:
        return hashlib.blake2b(source.content(id), digest_size=DIGEST_BYTES).digest()
    except BadFile:
        return None


def _compute(source: Source, ids: Sequence[int]) -> list[bytes | None]:
    def of_block(start: int) -> list[bytes | None]:
        return [content_digest(source, id) for id in ids[start : start + BLOCK_SIZE]]

    with ThreadPoolExecutor(cores().workers) as pool:
        return [digest for block in pool.map(of_block, range(0, len(ids), BLOCK_SIZE)) for digest in block]


def _sizes(source: Source, ids: Tensor) -> NDArray[np.int64] | None:
    """Return the length of each image's content; None if only reading it would tell."""
    if isinstance(source, FileSource):
        sizes = source.files.sizes
        return None if sizes is None else sizes[ids.numpy()]
    return np.full(len(ids), len(source.content(int(ids[0]))) if len(ids) else 0)
