"""Where encoded images lie: in a folder, in a list of paths, in zip or tar archives read in place.

Each gives the bytes of one image by its number, from any number of threads at once, and never more than a
regular file of bounded size holds.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from frossl.data.decode import BadFile
from frossl.data.index import EXTENSIONS, Index
from frossl.errors import InputError

LARGEST_FILE = 1 << 30
"""Bytes: no photograph is larger, and what claims to be is not read."""


class Files(Protocol):
    """Encoded images by number."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def digest(self) -> str:
        """Changes when a number would mean another image."""

    @property
    def closed(self) -> dict[str, str]:
        """What could not even be listed, with the reason."""

    def read(self, i: int) -> bytes: ...


def read_file(path: str | bytes | Path) -> bytes:
    """The bytes of a regular file; a pipe would wait for ever, a device has no end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb", buffering=0) as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise BadFile("not a regular file")
            return _bounded(file.read(LARGEST_FILE + 1) if status.st_size <= LARGEST_FILE else None)
    except OSError as error:
        raise BadFile(error.strerror or str(error)) from None


def _bounded(data: bytes | None) -> bytes:
    if data is None or len(data) > LARGEST_FILE:
        raise BadFile(f"larger than {LARGEST_FILE >> 20} MB")
    return data


class FolderFiles:
    """The files of an index, below its folder."""

    def __init__(self, root: Path, index: Index) -> None:
        self.root, self.names, self.digest, self.closed = root, index.names, index.digest, index.closed

    def read(self, i: int) -> bytes:
        return read_file(os.path.join(os.fsencode(self.root), self.names.raw(i)))


class ListedFiles:
    """The files that a list names; relative ones lie beside the list."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self.names = root, list(names)
        self.closed: dict[str, str] = {}
        self.digest = hashlib.sha256(os.fsencode("\0".join(self.names))).hexdigest()

    def read(self, i: int) -> bytes:
        return read_file(self.root / self.names[i])


def read_list(path: Path) -> tuple[ListedFiles, list[str | None]]:
    """A text file with a path on each line, or CSV with the columns `path` and, if known, `label`."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    labels: list[str | None]
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(text))
        if "path" not in (reader.fieldnames or ()):
            raise InputError(f"{path} has no column `path`; give `path` or `path,label` in its first line")
        rows = [row for row in reader if row["path"]]
        names, labels = [row["path"] for row in rows], [row.get("label") or None for row in rows]
    else:
        names = [line.strip() for line in text.splitlines() if line.strip()]
        labels = [None] * len(names)
    return ListedFiles(path.parent, names), labels


@dataclass(frozen=True)
class _Member:
    archive: int
    start: int
    stored: int
    """Bytes in the archive."""
    size: int
    packed: bool
    checksum: int | None


class ArchivedFiles:
    """Image members of zip or tar archives, read in place. Of several archives, names begin with theirs."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.closed: dict[str, str] = {}
        self._handles = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        found: list[tuple[str, _Member]] = []
        self.texts: dict[str, str] = {}
        """Small texts beside the images, such as `0001.cls` in a shard of WebDataset."""
        for number, path in enumerate(paths):
            prefix = f"{path.name}/" if len(paths) > 1 else ""
            listed = self._zip(number, path) if zipfile.is_zipfile(path) else self._tar(number, path)
            for name, member in listed:
                if _shown(name):
                    found.append((prefix + name, member))
                elif name.endswith(".cls") and member.size < 100:
                    self.texts[prefix + name] = self._bytes(member).decode("utf-8", "replace").strip()
        found.sort(key=lambda pair: os.fsencode(pair[0]))
        self.names, self._members = [name for name, _ in found], [member for _, member in found]
        content = "\0".join(f"{name}\0{member.size}" for name, member in found)
        self.digest = hashlib.sha256(os.fsencode(content)).hexdigest()

    def _zip(self, number: int, path: Path) -> list[tuple[str, _Member]]:
        with zipfile.ZipFile(path) as archive:
            found = []
            for info in archive.infolist():
                known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                if info.is_dir() or not known or info.flag_bits & 1:  # another packing, or encrypted
                    continue
                packed = info.compress_type == zipfile.ZIP_DEFLATED
                place = (info.header_offset, info.compress_size, info.file_size)
                found.append((info.filename, _Member(number, *place, packed, info.CRC)))
            return found

    def _tar(self, number: int, path: Path) -> list[tuple[str, _Member]]:
        try:
            with tarfile.open(path, "r:") as archive:
                return [
                    (info.name, _Member(number, info.offset_data, info.size, info.size, False, None))
                    for info in archive
                    if info.isreg()
                ]
        except tarfile.TarError as error:
            raise InputError(
                f"{path} cannot be read in place ({error}); give a zip, an uncompressed tar, or unpack it"
            ) from None

    def read(self, i: int) -> bytes:
        try:
            return self._bytes(self._members[i])
        except (OSError, zlib.error, struct.error) as error:
            raise BadFile(f"{type(error).__name__}: {error}") from None

    def _bytes(self, member: _Member) -> bytes:
        if member.size > LARGEST_FILE:
            raise BadFile(f"larger than {LARGEST_FILE >> 20} MB")
        handle, start = self._handles[member.archive], member.start
        if member.checksum is not None:  # a zip: the place is that of its own header
            header = os.pread(handle, 30, start)
            start += 30 + sum(struct.unpack("<HH", header[26:30]))
        data = os.pread(handle, member.stored, start)
        if member.packed:
            data = zlib.decompressobj(-15).decompress(data, member.size)
        if len(data) != member.size:
            raise BadFile("the archive ends before the image does")
        if member.checksum is not None and zlib.crc32(data) != member.checksum:
            raise BadFile("another checksum than the archive says")
        return data


class Chosen:
    """Those of the files whose names begin so, without that beginning."""

    def __init__(self, files: Files, prefix: str) -> None:
        self._files = files
        self._numbers = [i for i, name in enumerate(files.names) if name.startswith(prefix)]
        self.names = [files.names[i].removeprefix(prefix) for i in self._numbers]
        self.closed: dict[str, str] = {}
        self.digest = hashlib.sha256(f"{files.digest} {prefix}".encode()).hexdigest()

    def read(self, i: int) -> bytes:
        return self._files.read(self._numbers[i])


def _shown(name: str) -> bool:
    """An image, in no hidden folder."""
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
    return not hidden and os.fsencode(name).lower().endswith(EXTENSIONS)
