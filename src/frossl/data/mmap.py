"""Arrays in one memory-mapped file, for indexes, of which a run reads little. No pickle."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from frossl.errors import first_line
from frossl.runs.folder import write_atomically
from frossl.runs.lock import remove_abandoned

Array = NDArray[Any]

MAX_NAMES_BYTES = 1 << 32
"""Largest file of names that is read; it holds those of 40 million images."""


class Names(Sequence[str]):
    """Sequence of names in one block of memory: about 40 bytes each; a list of strings takes 100 and more.

    Args:
        blob: All names, one after the other, as bytes.
        ends: End of each name in `blob`, int64 (N,).
    """

    def __init__(self, blob: bytes | NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.blob: memoryview = memoryview(blob) if isinstance(blob, bytes) else blob.data
        self.ends = ends

    @classmethod
    def of(cls, names: Iterable[bytes]) -> Names:
        """Build the sequence from names as bytes."""
        listed = list(names)
        return cls(b"".join(listed), np.cumsum([len(name) for name in listed], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        return os.fsdecode(self.raw(range(len(self))[i]))

    def raw(self, i: int) -> bytes:
        """Return a name as bytes."""
        return bytes(self.blob[(int(self.ends[i - 1]) if i else 0) : int(self.ends[i])])

    def raws(self) -> Iterator[bytes]:
        """Yield all names as bytes."""
        start = 0
        for end in self.ends.tolist():
            yield bytes(self.blob[start:end])
            start = end

    def write(self, path: Path) -> None:
        """Write the names to a compressed .npz file, atomically."""
        write_atomically(path, lambda file: np.savez_compressed(file, blob=self.array(), ends=self.ends))

    @classmethod
    def read(cls, path: Path) -> Names:
        """Read the names that `write` wrote; a ValueError for any other file."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                if sum(member.file_size for member in stored.zip.infolist()) > MAX_NAMES_BYTES:
                    raise ValueError(f"more than {MAX_NAMES_BYTES >> 30} GB of names")
                blob, names = stored["blob"], cls(stored["blob"], stored["ends"])
        except OSError:
            raise
        except Exception as error:  # hostile headers make numpy raise almost anything
            raise ValueError(first_line(error)) from None
        if blob.dtype != np.uint8 or not names.is_valid():
            raise ValueError("no list of names")
        return names

    def is_valid(self) -> bool:
        """Return whether every name is inside `blob`, which a damaged file does not guarantee."""
        blob, ends = self.array(), self.ends
        if blob.ndim != 1 or ends.ndim != 1 or ends.dtype != np.int64:
            return False
        return not len(ends) or bool(ends[0] >= 0 and ends[-1] <= len(blob) and (np.diff(ends) >= 0).all())

    def array(self) -> NDArray[np.uint8]:
        """Return `blob` as an array."""
        return np.frombuffer(self.blob, np.uint8)

    def digest(self, sizes: NDArray[np.int64]) -> str:
        """Return a digest that changes when a name is added or removed, or a size changes."""
        digest = hashlib.sha256()
        for part in (self.blob, self.ends.data, sizes.data):
            digest.update(part)
        return digest.hexdigest()


def save_arrays(path: Path, arrays: Sequence[Array]) -> None:
    """Write arrays to one file. A failure is ignored: without the cache, the next start is slower.

    Args:
        path: The file.
        arrays: Arrays of one axis, those with the largest elements first, so that all are aligned.
    """

    def write(file: Any) -> None:
        for array in arrays:
            npy.write_array(file, array, version=(1, 0), allow_pickle=False)

    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        write_atomically(path, write)


def load_arrays(path: Path, kinds: Sequence[type[np.generic]]) -> list[Array] | None:
    """Memory-map the arrays that `save_arrays` wrote.

    Args:
        path: The file.
        kinds: Type of each array.

    Returns:
        The arrays; None if the file does not exist or holds something else.
    """
    try:
        with path.open("rb") as file:
            return [_mapped(file, path, kind) for kind in kinds]
    except Exception:  # hostile headers make numpy raise almost anything
        return None


def _mapped(file: Any, path: Path, kind: type[np.generic]) -> Array:
    if npy.read_magic(file) != (1, 0):
        raise ValueError("another format")
    shape, _, dtype = npy.read_array_header_1_0(file)
    if dtype != kind or len(shape) != 1:
        raise ValueError("another kind of array")
    start, length = file.tell(), shape[0] * dtype.itemsize
    if length < 0 or start + length > path.stat().st_size:
        raise ValueError("cut off")
    file.seek(length, os.SEEK_CUR)
    return np.memmap(path, dtype, "r", offset=start, shape=shape) if length else np.empty(shape, dtype)
