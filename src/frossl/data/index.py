"""Which image files lie below a folder: found once, kept in the user's cache, never in the data.

A folder whose modification time is what it was is not scanned again, so a second start costs one `stat` for
each folder, not one for each file.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from frossl.data.kept import Names, keep_arrays, kept_arrays
from frossl.runs import is_run

EXTENSIONS = (b".jpg", b".jpeg", b".png", b".webp", b".bmp", b".tif", b".tiff")
VERSION = b"2 "
"""Of what is kept: version 0.1.0 took pictures in run folders for data."""
MARK = b"provenance.json"
"""In a folder that holds this file, a run may be kept: what it writes is not data."""
UNSURE = 2_000_000_000
"""Nanoseconds: a folder that changed so shortly before it was scanned may have changed again unseen."""

Found = Callable[[int], None]
"""Told how many files have been found so far."""


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
    folders: Names
    """Every folder by its relative path: nothing, `a/`, `a/b/`, …"""
    folder_of: NDArray[np.int32]
    """Of each file, the number of its folder."""
    closed: dict[str, str]
    """Folders that could not be opened, with the reason."""

    @property
    def digest(self) -> str:
        """Changes when a file comes, goes, or has another size."""
        return self.names.digest(self.sizes)


def index_folder(root: Path, *, cache: Path | None = None, found: Found | None = None) -> Index:
    """Find every image file below `root`. Hidden files and folders and frossl's own run folders are left out;
    links to folders are followed.

    cache: a folder where what was found is kept for the next time.
    """
    top = os.fsencode(root)
    file = cache and cache / f"{hashlib.sha256(VERSION + os.path.realpath(top)).hexdigest()[:32]}.index"
    kept = _read(file) if file else None
    if kept is not None and _unchanged(*kept, top):
        return kept[0]
    folders, closed = _scan(top, _by_folder(*kept) if kept is not None else {}, found)
    rows = sorted(
        (relative + name, size)
        for relative, folder in folders.items()
        for name, size in zip(folder.files, folder.sizes, strict=True)
    )
    names = Names.of(name for name, _ in rows)
    sizes = np.fromiter((size for _, size in rows), np.int64, len(rows))
    number = {relative: i for i, relative in enumerate(folders)}
    folder_of = np.fromiter((number[name[: name.rfind(b"/") + 1]] for name, _ in rows), np.int32, len(rows))
    closed_names = {os.fsdecode(relative): reason for relative, reason in closed.items()}
    index = Index(names, sizes, Names.of(folders), folder_of, closed_names)
    if file and not closed:
        _write(file, index, np.array([folder.changed for folder in folders.values()], np.int64))
    return index


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
            if (status.st_dev, status.st_ino) in seen:  # a link to what was seen, perhaps in a circle
                folders[relative[: relative.rfind(b"/", 0, -1) + 1]].changed = -1  # it may be real tomorrow
                continue
            seen.add((status.st_dev, status.st_ino))
            before = known.get(relative)
            unchanged = before is not None and before.changed == status.st_mtime_ns
            folder = before if before is not None and unchanged else _list(path, status.st_mtime_ns)
        except OSError as error:
            closed[relative] = error.strerror or str(error)
            continue
        folders[relative] = folder
        waiting += [relative + name + b"/" for name in sorted(folder.subfolders, reverse=True)]
        count += len(folder.files)
        if found is not None:
            found(count)
    return folders, closed


def _list(path: bytes, changed: int) -> _Folder:
    sure = time.time_ns() - changed > UNSURE
    folder = _Folder(changed if sure else -1)
    with os.scandir(path or b".") as scanned:
        entries = list(scanned)
        if any(entry.name == MARK for entry in entries) and is_run(path or b"."):
            return folder
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


Kept = tuple[Index, NDArray[np.int64]]
"""An index and the modification time of each of its folders."""


def _write(path: Path, index: Index, changed: NDArray[np.int64]) -> None:
    names, folders = index.names, index.folders
    whole = [names.ends, index.sizes, folders.ends, changed]
    keep_arrays(path, [*whole, index.folder_of, names.array(), folders.array()])


def _read(path: Path) -> Kept | None:
    kept = kept_arrays(path, [np.int64] * 4 + [np.int32, np.uint8, np.uint8])
    if kept is None:
        return None
    ends, sizes, folder_ends, changed, folder_of, names, folders = kept
    index = Index(Names(names, ends), sizes, Names(folders, folder_ends), folder_of, {})
    counts = (len(sizes), len(folder_of), len(changed)) == (len(ends), len(ends), len(folder_ends))
    placed = not len(folder_of) or 0 <= folder_of.min() <= folder_of.max() < len(folder_ends)
    whole = counts and placed and index.names.is_whole() and index.folders.is_whole()
    return (index, changed) if whole else None


def _unchanged(index: Index, changed: NDArray[np.int64], top: bytes) -> bool:
    try:
        return all(
            when == os.stat(os.path.join(top, relative)).st_mtime_ns
            for relative, when in zip(index.folders.raws(), changed.tolist(), strict=True)
        )
    except OSError:
        return False


def _by_folder(index: Index, changed: NDArray[np.int64]) -> dict[bytes, _Folder]:
    places = list(index.folders.raws())
    folders = {place: _Folder(when) for place, when in zip(places, changed.tolist(), strict=True)}
    for relative in places[1:]:
        parent = relative[: relative.rfind(b"/", 0, -1) + 1]
        folders[parent].subfolders.append(relative[len(parent) : -1])
    for raw, size, number in zip(
        index.names.raws(), index.sizes.tolist(), index.folder_of.tolist(), strict=True
    ):
        folder = folders[places[number]]
        folder.files.append(raw[len(places[number]) :])
        folder.sizes.append(size)
    return folders
