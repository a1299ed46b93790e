"""Which image files lie below a folder: found once, kept in the user's cache, never in the data.

A folder whose modification time is what it was is not scanned again, so a second start costs one `stat` for
each folder, not one for each file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from frossl.runs.folder import write_atomically

EXTENSIONS = (b".jpg", b".jpeg", b".png", b".webp", b".bmp", b".tif", b".tiff")
UNSURE = 2_000_000_000
"""Nanoseconds: a folder that changed so shortly before it was scanned may have changed again unseen."""

Found = Callable[[int], None]
"""Told how many files have been found so far."""


class Names(Sequence[str]):
    """Many names in one piece of memory: some 40 bytes each, where a list of strings takes 100 and more."""

    def __init__(self, blob: bytes, ends: NDArray[np.int64]) -> None:
        self.blob, self.ends = blob, ends

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
        return self.blob[(int(self.ends[i - 1]) if i else 0) : int(self.ends[i])]

    def raws(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends.tolist():
            yield self.blob[start:end]
            start = end


@dataclass
class _Folder:
    """What one folder held when it was scanned."""

    changed: int
    """Its modification time in nanoseconds; −1 where it is not to be trusted."""
    files: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    subfolders: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Index:
    """Image files below a folder, sorted by their relative paths: an id is a row of this."""

    names: Names
    sizes: NDArray[np.int64]
    closed: dict[str, str]
    """Folders that could not be opened, with the reason."""

    @property
    def digest(self) -> str:
        """Changes when a file comes, goes, or has another size."""
        return hashlib.sha256(self.names.blob + self.names.ends.tobytes() + self.sizes.tobytes()).hexdigest()


def index_folder(root: Path, *, cache: Path | None = None, found: Found | None = None) -> Index:
    """Every image file below `root`; hidden files and folders are left out, links to folders are followed.

    cache: a folder where what was found is kept for the next time.
    """
    top = os.fsencode(root)
    file = cache and cache / f"{hashlib.sha256(os.path.realpath(top)).hexdigest()[:32]}.npz"
    kept = _Kept.read(file) if file else None
    if kept is not None and kept.unchanged(top):
        return Index(kept.names, kept.sizes, {})
    folders, closed = _scan(top, kept.folders() if kept is not None else {}, found)
    rows = sorted(
        (relative + name, size)
        for relative, folder in folders.items()
        for name, size in zip(folder.files, folder.sizes, strict=True)
    )
    names = Names.of(name for name, _ in rows)
    sizes = np.fromiter((size for _, size in rows), np.int64, len(rows))
    if file and not closed:
        _Kept.of(folders, names, sizes).write(file)
    return Index(names, sizes, {os.fsdecode(k): v for k, v in closed.items()})


def _scan(
    top: bytes, known: dict[bytes, _Folder], found: Found | None
) -> tuple[dict[bytes, _Folder], dict[bytes, str]]:
    """Folder after folder by its relative path (`b""`, `b"a/"`), from memory where it has not changed."""
    folders: dict[bytes, _Folder] = {}
    closed: dict[bytes, str] = {}
    seen: set[tuple[int, int]] = set()
    waiting, count = [b""], 0
    while waiting:
        relative = waiting.pop()
        path = os.path.join(top, relative)
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:  # links that lead in a circle
                continue
            seen.add((status.st_dev, status.st_ino))
            before = known.get(relative)
            unchanged = before is not None and before.changed == status.st_mtime_ns
            folder = before if before is not None and unchanged else _list(path, status.st_mtime_ns)
        except OSError as error:
            closed[relative] = error.strerror or str(error)
            continue
        folders[relative] = folder
        waiting += [relative + name + b"/" for name in folder.subfolders]
        count += len(folder.files)
        if found is not None:
            found(count)
    return folders, closed


def _list(path: bytes, changed: int) -> _Folder:
    sure = time.time_ns() - changed > UNSURE
    folder = _Folder(changed if sure else -1)
    with os.scandir(path or b".") as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(b".") or name == b"__MACOSX":
                continue
            if _is_folder(entry):
                folder.subfolders.append(name)
            elif name.lower().endswith(EXTENSIONS):
                folder.files.append(name)
                folder.sizes.append(_size(entry))
    return folder


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself: named as a bad file when it is read
        return False


def _size(entry: os.DirEntry[bytes]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return -1


# what is kept: arrays only, no pickle


@dataclass(frozen=True)
class _Kept:
    names: Names
    sizes: NDArray[np.int64]
    folder_of: NDArray[np.int32]
    """Of each file, the number of its folder."""
    places: Names
    """The folders."""
    changed: NDArray[np.int64]

    @classmethod
    def of(cls, folders: dict[bytes, _Folder], names: Names, sizes: NDArray[np.int64]) -> _Kept:
        number = {relative: i for i, relative in enumerate(folders)}
        own = (number[raw[: raw.rfind(b"/") + 1]] for raw in names.raws())
        folder_of = np.fromiter(own, np.int32, len(names))
        changed = np.array([folder.changed for folder in folders.values()], np.int64)
        return cls(names, sizes, folder_of, Names.of(folders), changed)

    def unchanged(self, top: bytes) -> bool:
        try:
            return all(
                when == os.stat(os.path.join(top, relative)).st_mtime_ns
                for relative, when in zip(self.places.raws(), self.changed.tolist(), strict=True)
            )
        except OSError:
            return False

    def folders(self) -> dict[bytes, _Folder]:
        places = list(self.places.raws())
        folders = {place: _Folder(when) for place, when in zip(places, self.changed.tolist(), strict=True)}
        for relative in places[1:]:
            parent = relative[: relative.rfind(b"/", 0, -1) + 1]
            folders[parent].subfolders.append(relative[len(parent) : -1])
        rows = zip(self.names.raws(), self.sizes.tolist(), self.folder_of.tolist(), strict=True)
        for raw, size, number in rows:
            folder = folders[places[number]]
            folder.files.append(raw[len(places[number]) :])
            folder.sizes.append(size)
        return folders

    def write(self, path: Path) -> None:
        arrays: dict[str, Any] = {
            "names": np.frombuffer(self.names.blob, np.uint8),
            "ends": self.names.ends,
            "sizes": self.sizes,
            "folder_of": self.folder_of,
            "places": np.frombuffer(self.places.blob, np.uint8),
            "place_ends": self.places.ends,
            "changed": self.changed,
        }
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda file: np.savez(file, **arrays))

    @classmethod
    def read(cls, path: Path) -> _Kept | None:
        """What `write` wrote; None where there is nothing, or not that."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                names = Names(kept["names"].tobytes(), kept["ends"])
                places = Names(kept["places"].tobytes(), kept["place_ends"])
                return cls(names, kept["sizes"], kept["folder_of"], places, kept["changed"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
