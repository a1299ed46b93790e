"""Arrays kept in one file and read by mapping it: indexes, of which a run touches little. No pickle."""

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

LARGEST_INDEX = 1 << 32
"""Bytes of names: those of 40 million images; what claims to hold more is not read."""


class Names(Sequence[str]):
    """Many names in one piece of memory: some 40 bytes each, where a list of strings takes 100 and more."""

    def __init__(self, blob: bytes | NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.blob: memoryview = memoryview(blob) if isinstance(blob, bytes) else blob.data
        self.ends = ends

    @classmethod
    def of(cls, names: Iterable[bytes]) -> Names:
        held = list(names)
        return cls(b"".join(held), np.cumsum([len(name) for name in held], dtype=np.int64))

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
        return bytes(self.blob[(int(self.ends[i - 1]) if i else 0) : int(self.ends[i])])

    def raws(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends.tolist():
            yield bytes(self.blob[start:end])
            start = end

    def write(self, path: Path) -> None:
        write_atomically(path, lambda file: np.savez_compressed(file, blob=self.array(), ends=self.ends))

    @classmethod
    def read(cls, path: Path) -> Names:
        """What `write` wrote; ValueError for anything else."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                if sum(member.file_size for member in kept.zip.infolist()) > LARGEST_INDEX:
                    raise ValueError(f"more than {LARGEST_INDEX >> 30} GB of names")
                blob, names = kept["blob"], cls(kept["blob"], kept["ends"])
        except OSError:
            raise
        except Exception as error:  # hostile headers make numpy raise almost anything
            raise ValueError(first_line(error)) from None
        if blob.dtype != np.uint8 or not names.is_whole():
            raise ValueError("no list of names")
        return names

    def is_whole(self) -> bool:
        """Every name lies where it should: a file may say anything."""
        blob, ends = self.array(), self.ends
        if blob.ndim != 1 or ends.ndim != 1 or ends.dtype != np.int64:
            return False
        return not len(ends) or bool(ends[0] >= 0 and ends[-1] <= len(blob) and (np.diff(ends) >= 0).all())

    def array(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.blob, np.uint8)

    def digest(self, sizes: NDArray[np.int64]) -> str:
        """Changes when a name comes, goes, or has another size."""
        digest = hashlib.sha256()
        for part in (self.blob, self.ends.data, sizes.data):
            digest.update(part)
        return digest.hexdigest()


def keep_arrays(path: Path, arrays: Sequence[Array]) -> None:
    """Write arrays one after the other, those with the largest elements first, so that all lie aligned."""

    def write(file: Any) -> None:
        for array in arrays:
            npy.write_array(file, array, version=(1, 0), allow_pickle=False)

    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        write_atomically(path, write)


def kept_arrays(path: Path, kinds: Sequence[type[np.generic]]) -> list[Array] | None:
    """What `keep_arrays` wrote, mapped; None where there is nothing, or not that."""
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
