"""Index of the image files below a folder, cached in the user's cache folder, never in the data.

A folder whose modification time has not changed is not scanned again, so a second start costs one `stat` for
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

from frossl.data.mmap import Names, load_arrays, save_arrays
from frossl.runs import is_run

EXTENSIONS = (b".jpg", b".jpeg", b".png", b".webp", b".bmp", b".tif", b".tiff")
CACHE_VERSION = b"2 "
"""Version of the cached index; that of version 0.1.0 included pictures in run folders."""
PROVENANCE_FILE = b"provenance.json"
"""File that marks a run folder, whose pictures are not data."""
RECENT_NS = 2_000_000_000
"""Nanoseconds after a change within which a folder may change again without a new modification time."""

Found = Callable[[int], None]
"""Progress callback that receives the number of files found so far."""


@dataclass
class _Folder:
    """Content of a folder when it was scanned."""

    changed: int
    """Modification time in nanoseconds; −1 if it cannot be trusted."""
    files: list[bytes] = field(default_factory=list)
    """Names of the image files."""
    sizes: list[int] = field(default_factory=list)
    """Bytes of each image file."""
    subfolders: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Index:
    """Index of the image files below a folder, sorted by relative path: an id is a row of the index."""

    names: Names
    """Relative paths of the files."""
    sizes: NDArray[np.int64]
    """Bytes of each file."""
    folders: Names
    """Relative paths of all folders: the empty path, `a/`, `a/b/`, …"""
    folder_of: NDArray[np.int32]
    """Number of each file's folder."""
    unreadable: dict[str, str]
    """Folders that could not be listed, with the reason."""

    @property
    def digest(self) -> str:
        """Digest that changes when a file is added, removed, or has another size."""
        return self.names.digest(self.sizes)


def index_folder(root: Path, *, cache: Path | None = None, found: Found | None = None) -> Index:
    """Index every image file below a folder.

    Hidden files and folders and frossl's own run folders are skipped; links to folders are followed.

    Args:
        root: The folder.
        cache: Folder where the index is cached; None for no cache.
        found: Callback that receives the number of files found so far.
    """
    top = os.fsencode(root)
    file = cache and cache / f"{hashlib.sha256(CACHE_VERSION + os.path.realpath(top)).hexdigest()[:32]}.index"
    cached = _read(file) if file else None
    if cached is not None and _unchanged(*cached, top):
        return cached[0]
    folders, unreadable = _scan(top, _by_folder(*cached) if cached is not None else {}, found)
    rows = sorted(
        (relative + name, size)
        for relative, folder in folders.items()
        for name, size in zip(folder.files, folder.sizes, strict=True)
    )
    names = Names.of(name for name, _ in rows)
    sizes = np.fromiter((size for _, size in rows), np.int64, len(rows))
    number = {relative: i for i, relative in enumerate(folders)}
    folder_of = np.fromiter((number[name[: name.rfind(b"/") + 1]] for name, _ in rows), np.int32, len(rows))
    unreadable_names = {os.fsdecode(relative): reason for relative, reason in unreadable.items()}
    index = Index(names, sizes, Names.of(folders), folder_of, unreadable_names)
    if file and not unreadable:
        _write(file, index, np.array([folder.changed for folder in folders.values()], np.int64))
    return index


def _scan(
    top: bytes, known: dict[bytes, _Folder], found: Found | None
) -> tuple[dict[bytes, _Folder], dict[bytes, str]]:
    """List every folder by its relative path (`b""`, `b"a/"`); unchanged ones are taken from `known`."""
    folders: dict[bytes, _Folder] = {}
    unreadable: dict[bytes, str] = {}
    seen: set[tuple[int, int]] = set()
    waiting, count = [b""], 0
    while waiting:
        relative = waiting.pop()
        path = os.path.join(top, relative)
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:  # a link to a folder that was listed, perhaps a cycle
                folders[
                    relative[: relative.rfind(b"/", 0, -1) + 1]
                ].changed = -1  # the link may be replaced by a folder
                continue
            seen.add((status.st_dev, status.st_ino))
            before = known.get(relative)
            unchanged = before is not None and before.changed == status.st_mtime_ns
            folder = before if before is not None and unchanged else _scan_folder(path, status.st_mtime_ns)
        except OSError as error:
            unreadable[relative] = error.strerror or str(error)
            continue
        folders[relative] = folder
        waiting += [relative + name + b"/" for name in sorted(folder.subfolders, reverse=True)]
        count += len(folder.files)
        if found is not None:
            found(count)
    return folders, unreadable


def _scan_folder(path: bytes, changed: int) -> _Folder:
    reliable = time.time_ns() - changed > RECENT_NS
    folder = _Folder(changed if reliable else -1)
    with os.scandir(path or b".") as scanned:
        entries = list(scanned)
        if any(entry.name == PROVENANCE_FILE for entry in entries) and is_run(path or b"."):
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
    except OSError:  # a link to itself: reported as a bad file when it is read
        return False


def _size(entry: os.DirEntry[bytes]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return -1


CachedIndex = tuple[Index, NDArray[np.int64]]
"""An index and the modification time of each of its folders."""


def _write(path: Path, index: Index, changed: NDArray[np.int64]) -> None:
    names, folders = index.names, index.folders
    int64_arrays = [names.ends, index.sizes, folders.ends, changed]
    save_arrays(path, [*int64_arrays, index.folder_of, names.array(), folders.array()])


def _read(path: Path) -> CachedIndex | None:
    arrays = load_arrays(path, [np.int64] * 4 + [np.int32, np.uint8, np.uint8])
    if arrays is None:
        return None
    ends, sizes, folder_ends, changed, folder_of, names, folders = arrays
    index = Index(Names(names, ends), sizes, Names(folders, folder_ends), folder_of, {})
    counts = (len(sizes), len(folder_of), len(changed)) == (len(ends), len(ends), len(folder_ends))
    in_range = not len(folder_of) or 0 <= folder_of.min() <= folder_of.max() < len(folder_ends)
    valid = counts and in_range and index.names.is_valid() and index.folders.is_valid()
    return (index, changed) if valid else None


def _unchanged(index: Index, changed: NDArray[np.int64], top: bytes) -> bool:
    try:
        return all(
            when == os.stat(os.path.join(top, relative)).st_mtime_ns
            for relative, when in zip(index.folders.raws(), changed.tolist(), strict=True)
        )
    except OSError:
        return False


def _by_folder(index: Index, changed: NDArray[np.int64]) -> dict[bytes, _Folder]:
    paths = list(index.folders.raws())
    folders = {path: _Folder(when) for path, when in zip(paths, changed.tolist(), strict=True)}
    for relative in paths[1:]:
        parent = relative[: relative.rfind(b"/", 0, -1) + 1]
        folders[parent].subfolders.append(relative[len(parent) : -1])
    for raw, size, number in zip(
        index.names.raws(), index.sizes.tolist(), index.folder_of.tolist(), strict=True
    ):
        folder = folders[paths[number]]
        folder.files.append(raw[len(paths[number]) :])
        folder.sizes.append(size)
    return folders
