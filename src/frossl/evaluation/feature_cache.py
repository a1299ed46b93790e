"""Features that were computed before, in files of a run folder, found by the contents of the images.

A file is never trusted: one that is damaged, or holds something else, counts as absent and is replaced.
Without write access, or on a full disk, features are computed every time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from frossl.data import DIGEST_BYTES
from frossl.runs.folder import write_atomically
from frossl.runs.lock import remove_abandoned

logger = logging.getLogger("frossl")

VERSION = 1
"""Version of the computation of features; features of another version are computed anew."""
CACHE_BYTES = 256 << 20
"""Largest size of all files of a cache; those that were not used for the longest time are removed first."""
HEADER_KEY = "frossl"


class FeatureCache:
    """Folder of stored features.

    Args:
        folder: The folder, which is created when something is stored.
        limit: Largest size of all its files, in bytes.
    """

    def __init__(self, folder: Path, *, limit: int = CACHE_BYTES) -> None:
        self.folder, self.limit = folder, limit
        self._opened: dict[str, StoredFeatures] = {}

    def open(self, width: int, *parts: object) -> StoredFeatures:
        """Return the features of one way to compute them, as far as they are stored.

        Args:
            width: Number of features F.
            *parts: Everything that the features depend on besides the contents of the images.
        """
        name = hashlib.sha256(repr((VERSION, torch.__version__, width, *parts)).encode()).hexdigest()[:32]
        if name not in self._opened:
            self._opened[name] = StoredFeatures(self, self.folder / f"{name}.safetensors", width)
        return self._opened[name]

    def save(self) -> None:
        """Write the features that were added since they were opened."""
        for stored in self._opened.values():
            stored.save()

    def remove_oldest(self, *, keep: Path) -> None:
        """Remove the files that were not used for the longest time, down to the limit, and abandoned ones."""
        remove_abandoned(self.folder)
        files = [(path.stat(), path) for path in self.folder.glob("*.safetensors")]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda found: found[0].st_mtime_ns):
            if total > self.limit and path != keep:
                path.unlink(missing_ok=True)
                total -= status.st_size


class StoredFeatures:
    """Features by the digests of their images, in one file."""

    def __init__(self, cache: FeatureCache, path: Path, width: int) -> None:
        self.cache, self.path, self.width = cache, path, width
        self.digests, self.features = self._read()
        self._rows = {digest: row for row, digest in enumerate(self.digests)}
        self._used: set[bytes] = set()
        self._fresh = False

    def holds(self, images: int) -> bool:
        """Return whether the features of so many images fit into a file, that is into half of the limit."""
        return images * (DIGEST_BYTES + 4 * self.width) <= self.cache.limit // 2

    def find(self, digests: Sequence[bytes | None]) -> Tensor:
        """Return the row of each image in `features`, int64 (N,); −1 where there is none."""
        rows = [-1 if digest is None else self._rows.get(digest, -1) for digest in digests]
        self._used.update(digest for digest in digests if digest in self._rows)
        return torch.tensor(rows, dtype=torch.int64)

    def add(self, digests: Sequence[bytes | None], features: Tensor) -> None:
        """Add the features (N, F) of images; those without a digest are left out."""
        chosen = [i for i, digest in enumerate(digests) if digest is not None and digest not in self._rows]
        if not chosen:
            return
        added = [digest for i in chosen if (digest := digests[i]) is not None]
        self._rows |= {digest: len(self.digests) + row for row, digest in enumerate(added)}
        self.features = torch.cat([self.features, features[chosen]])
        self.digests = [*self.digests, *added]
        self._used.update(added)
        self._fresh = True

    def save(self) -> None:
        """Write what was added, and note that the file was used.

        Features that this process did not use are dropped if the file became larger than half of the limit.
        """
        try:
            if not self._fresh:
                if self._used:
                    os.utime(self.path)
                return
            rows = list(range(len(self.digests)))
            if not self.holds(len(rows)):
                rows = sorted(self._rows[digest] for digest in self._used)
            if not self.holds(len(rows)):
                return
            content = _to_bytes(self.path.stem, [self.digests[row] for row in rows], self.features[rows])
            self.path.parent.mkdir(exist_ok=True)
            write_atomically(self.path, lambda file: file.write(content))
            self._fresh = False
            self.cache.remove_oldest(keep=self.path)
        except OSError as error:
            logger.debug("features are not stored in %s: %s", self.path, error)

    def _read(self) -> tuple[list[bytes], Tensor]:
        nothing = list[bytes](), torch.empty(0, self.width)
        try:
            if self.path.stat().st_size > self.cache.limit:
                return nothing
            return _from_bytes(self.path.stem, self.path.read_bytes(), self.width)
        except FileNotFoundError:
            return nothing
        except Exception as error:  # hostile headers make safetensors raise almost anything
            logger.debug("%s is damaged, and is replaced: %s", self.path, error)
            return nothing


def _to_bytes(key: str, digests: Sequence[bytes], features: Tensor) -> bytes:
    table = torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).view(-1, DIGEST_BYTES)
    tensors = {"digests": table, "features": features.contiguous()}
    header = {"key": key, "checksum": _checksum(tensors)}
    return bytes(save(tensors, metadata={HEADER_KEY: json.dumps(header)}))


def _from_bytes(key: str, content: bytes, width: int) -> tuple[list[bytes], Tensor]:
    tensors = load(content)  # bounded by the file size: safetensors refuses a header that lists more
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][HEADER_KEY])
    digests, features = tensors["digests"], tensors["features"]
    if (
        (digests.dtype, features.dtype) != (torch.uint8, torch.float32)
        or features.shape != (len(features), width)
        or digests.shape != (len(features), DIGEST_BYTES)
        or header != {"key": key, "checksum": _checksum(tensors)}
        or not features.isfinite().all()
    ):
        raise ValueError("other features than it is named for")
    whole = digests.numpy().tobytes()
    return [whole[i : i + DIGEST_BYTES] for i in range(0, len(whole), DIGEST_BYTES)], features


def _checksum(tensors: dict[str, Tensor]) -> int:
    checksum = 0
    for name in ("digests", "features"):
        checksum = zlib.crc32(tensors[name].numpy().data, checksum)
    return checksum
