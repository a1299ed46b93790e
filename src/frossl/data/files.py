"""Where encoded images lie: in a folder, in a list of paths, in zip or tar archives read in place.

Each gives the bytes of one image by its number, from any number of threads at once, and never more than a
regular file of bounded size holds.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from frossl.data.cells import from_cell
from frossl.data.decode import BadFile
from frossl.data.index import EXTENSIONS, Index
from frossl.data.kept import Names, keep_arrays, kept_arrays
from frossl.errors import InputError, first_line

LARGEST_FILE = 1 << 30
"""Bytes: no photograph is larger, and what claims to be is not read."""


class Files(Protocol):
    """Encoded images by number."""

    @property
    def names(self) -> Names: ...
    @property
    def digest(self) -> str:
        """Changes when a number would mean another image."""

    @property
    def closed(self) -> dict[str, str]:
        """What could not even be listed, with the reason."""

    @property
    def shard_ends(self) -> tuple[int, ...]:
        """Where the images of each archive end, if they lie in several."""

    @property
    def within(self) -> str | None:
        """What the names of a part begin with, below the data (`train/`); None where they do not say."""

    @property
    def place(self) -> str:
        """What digests of the files are kept under."""

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """Bytes of each file; None where only reading would tell."""

    def read(self, i: int) -> bytes: ...
    def stamp(self, i: int) -> bytes | None:
        """Changes when the bytes of a file may have; None where that cannot be told without reading them."""


STAMP = 16
"""Bytes of a stamp."""
UNSURE = 2_000_000_000
"""Nanoseconds: a file that changed so shortly ago may change again within the resolution of its time."""


def stamp_of(*known: object) -> bytes:
    """Of what tells that bytes are still the same."""
    return hashlib.blake2b(repr(known).encode(), digest_size=STAMP).digest()


def _file_stamp(path: bytes) -> bytes | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    changed = (status.st_mtime_ns, status.st_ctime_ns)  # a copy may have been given the time of another
    if time.time_ns() - max(changed) < UNSURE:
        return None
    return stamp_of(os.path.abspath(path), status.st_size, *changed)


def _file_size(path: bytes) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return -1


OPENING = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""No system has all of these."""


def _opened(path: str | bytes | Path) -> io.FileIO:
    """Every reader has its own, so that threads do not move each other's place in the file."""
    return io.FileIO(path, opener=lambda name, _: os.open(name, OPENING))


def read_file(path: str | bytes | Path) -> bytes:
    """The bytes of a regular file; a pipe would wait for ever, a device has no end."""
    try:
        with _opened(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadFile("not a regular file")
            _check_size(status.st_size)
            return file.read(LARGEST_FILE)
    except OSError as error:
        raise BadFile(error.strerror or str(error)) from None
    except ValueError as error:  # a name with a zero byte
        raise BadFile(str(error)) from None


def _check_size(size: int) -> None:
    if size > LARGEST_FILE:
        raise BadFile(f"larger than {LARGEST_FILE >> 20} MB")


class FolderFiles:
    """The files of an index, below its folder."""

    shard_ends = ()

    def __init__(self, root: Path, index: Index, *, within: str = "") -> None:
        self.root, self.within = root, within
        self.names, self.digest, self.closed = index.names, index.digest, index.closed
        self.sizes, self.place = index.sizes, os.path.realpath(root)

    def read(self, i: int) -> bytes:
        return read_file(self._path(i))

    def stamp(self, i: int) -> bytes | None:
        return _file_stamp(self._path(i))

    def _path(self, i: int) -> bytes:
        return os.path.join(os.fsencode(self.root), self.names.raw(i))


class ListedFiles:
    """The files that a list names; relative ones lie beside the list."""

    shard_ends = ()
    within = None

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self.names = root, Names.of(map(os.fsencode, names))
        self.closed: dict[str, str] = {}
        self.digest = hashlib.sha256(os.fsencode("\0".join(names))).hexdigest()
        self.place = self.digest

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.array([_file_size(self._path(i)) for i in range(len(self.names))], np.int64)

    def read(self, i: int) -> bytes:
        return read_file(self.root / self.names[i])

    def stamp(self, i: int) -> bytes | None:
        return _file_stamp(self._path(i))

    def _path(self, i: int) -> bytes:
        return os.path.join(os.fsencode(self.root), self.names.raw(i))


def read_list(path: Path) -> tuple[ListedFiles, list[str | None]]:
    """A text file with a path on each line, or CSV with the columns `path` and, if known, `label`."""
    if path.suffix.lower() == ".csv":
        rows = read_table(path)
        return ListedFiles(path.parent, [name for name, _ in rows]), [label for _, label in rows]
    names = [line.strip() for line in _text(path).split("\n") if line.strip()]
    return ListedFiles(path.parent, names), [None] * len(names)


def read_table(path: Path) -> list[tuple[str, str | None]]:
    """CSV with the columns `path` and, if known, `label`."""
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), skipinitialspace=True)
    try:
        if "path" not in (reader.fieldnames or ()):
            raise InputError(f"{path} has no column `path`; give `path` or `path,label` in its first line")
        rows = [(row["path"], row.get("label")) for row in reader if row["path"]]
    except csv.Error as error:
        raise InputError(f"{path} is no table ({error}); check its quotes") from None
    return [(from_cell(name), from_cell(label) if label else None) for name, label in rows]


def _text(path: Path) -> str:
    raw = path.read_bytes()
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path} is in UTF-16; save it as UTF-8")
    return raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


TAR, STORED, DEFLATED, CLOSED = range(4)


class _Member(NamedTuple):
    """Of an archive: where it lies, and how."""

    start: int
    """Of its bytes in a tar, of its own header in a zip."""
    stored: int
    """Bytes in the archive."""
    size: int
    archive: int
    checksum: int
    way: int
    """TAR, STORED or DEFLATED; CLOSED is encrypted, or packed in another way."""


KINDS = (np.int64, np.int64, np.int64, np.int32, np.uint32, np.uint8)


class ArchivedFiles:
    """Image members of zip or tar archives, read in place. Of several archives, names begin with theirs."""

    within = ""

    def __init__(self, paths: Sequence[Path], *, cache: Path | None = None) -> None:
        """cache: a folder where the contents of the archives are kept for the next time."""
        self.closed: dict[str, str] = {}
        self._paths = [os.fsencode(path.absolute()) for path in paths]
        stamps = np.array([(s.st_size, s.st_mtime_ns) for s in map(os.stat, paths)], np.int64).reshape(-1)
        key = hashlib.sha256(b"\0".join(map(os.path.realpath, self._paths))).hexdigest()[:32]
        file = cache and cache / f"{key}.archives"
        kept = kept_arrays(file, (np.int64, np.int64, *KINDS, np.int32, np.uint8, np.uint8)) if file else None
        if kept is None or not np.array_equal(kept[0], stamps) or not _is_whole(kept, len(paths)):
            kept = [stamps, *self._listed(paths)]
            if file:
                keep_arrays(file, kept)
        self._stamps, self.place = stamps.reshape(-1, 2).tolist(), key
        _, ends, *self._members, self.label_of, names, labels = kept
        self.names = Names(names, ends)
        self.labels = tuple(bytes(labels).decode("utf-8").split("\0")) if len(labels) else ()
        """What `label_of` counts (−1 = none): texts that lie beside the images (`0001.jpg`, `0001.cls`)."""
        size, archive = self._members[2:4]
        ends_of_archives = np.flatnonzero(np.diff(archive, append=-1)) + 1
        self.shard_ends = tuple(ends_of_archives.tolist()) if len(paths) > 1 else ()
        self.digest, self.sizes = self.names.digest(size), size

    def _listed(self, paths: Sequence[Path]) -> list[NDArray[Any]]:
        found: list[tuple[bytes, _Member]] = []
        texts: dict[bytes, str] = {}
        for number, path in enumerate(paths):
            prefix = os.fsencode(path.name) + b"/" if len(paths) > 1 else b""
            for given, member in (_zip if _is_zip(path) else _tar)(number, path):
                name = os.path.normpath(given)  # `tar cf x.tar .` makes them begin with `./`
                if _shown(name):
                    found.append((prefix + os.fsencode(name), member))
                elif name.endswith(".cls") and member.size < 100:
                    with contextlib.suppress(BadFile, OSError, zlib.error, struct.error):
                        text = self._bytes(member).decode("utf-8", "replace").replace("\0", " ").strip()
                        texts[prefix + os.fsencode(name)] = text
        found.sort()
        labels = sorted(set(texts.values()))
        number_of = {label: i for i, label in enumerate(labels)}
        own = (texts.get(name.rpartition(b".")[0] + b".cls") for name, _ in found)
        label_of = [-1 if label is None else number_of[label] for label in own]
        names = Names.of(name for name, _ in found)
        columns = zip(*(member for _, member in found), strict=True) if found else ((),) * len(KINDS)
        members = [np.array(column, kind) for column, kind in zip(columns, KINDS, strict=True)]
        written = np.frombuffer("\0".join(labels).encode(), np.uint8)
        return [names.ends, *members, np.array(label_of, np.int32), names.array(), written]

    def read(self, i: int) -> bytes:
        try:
            return self._bytes(_Member(*(int(column[i]) for column in self._members)))
        except (OSError, zlib.error, struct.error) as error:
            raise BadFile(f"{type(error).__name__}: {error}") from None

    def stamp(self, i: int) -> bytes:
        archive = int(self._members[3][i])
        return stamp_of(self._paths[archive], *self._stamps[archive], int(self._members[0][i]))

    def _bytes(self, member: _Member) -> bytes:
        _check_size(max(member.size, member.stored))
        if member.way == CLOSED:
            raise BadFile("encrypted, or packed in a way that is not read in place")
        if member.size == 0:
            raise BadFile("empty")
        with _opened(self._paths[member.archive]) as file:
            file.seek(member.start)
            if member.way != TAR:
                names, extra = struct.unpack("<HH", file.read(30)[26:30])
                file.seek(names + extra, os.SEEK_CUR)
            data = file.read(member.stored)
        if member.way == DEFLATED:
            data = zlib.decompressobj(-15).decompress(data, member.size)
        if len(data) != member.size:
            raise BadFile("the archive ends before the image does")
        if member.way != TAR and zlib.crc32(data) != member.checksum:
            raise BadFile("another checksum than the archive says")
        return data


def _is_whole(kept: Sequence[NDArray[Any]], archives: int) -> bool:
    """What was kept fits together."""
    _, ends, *columns, names, labels = kept
    if any(len(column) != len(ends) for column in columns) or not Names(names, ends).is_whole():
        return False
    places, archive, label_of = columns[:3], columns[3], columns[-1]
    known = bytes(labels).count(b"\0") + 1 if len(labels) else 0
    counted = archive.max(initial=0) < archives and label_of.max(initial=-1) < known
    return bool(counted and all(column.min(initial=0) >= 0 for column in (*places, archive)))


def _zip(number: int, path: Path) -> Iterator[tuple[str, _Member]]:
    ways = {zipfile.ZIP_STORED: STORED, zipfile.ZIP_DEFLATED: DEFLATED}
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except OSError:
        raise
    except Exception as error:  # hostile archives make zipfile raise almost anything
        raise InputError(
            f"{path} cannot be read as a zip ({first_line(error)}); make it again, or unpack it"
        ) from None
    for info in members:
        if info.filename and not info.filename.endswith("/"):
            way = CLOSED if info.flag_bits & 1 else ways.get(info.compress_type, CLOSED)
            place = (info.header_offset, info.compress_size, info.file_size)
            yield info.filename, _Member(*place, number, info.CRC, way)


def _tar(number: int, path: Path) -> Iterator[tuple[str, _Member]]:
    try:
        with tarfile.open(path, "r:") as archive, path.open("rb") as raw:
            known: dict[str, _Member] = {}
            for info in archive:
                if info.isreg():
                    known[info.name] = _Member(info.offset_data, info.size, info.size, number, 0, TAR)
                elif info.islnk() and info.linkname in known:  # what tar makes of a second name
                    known[info.name] = known[info.linkname]
                else:
                    continue
                yield info.name, known[info.name]
            raw.seek(archive.offset)
            if raw.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # tarfile ends there without a word
                raise InputError(f"{path} is damaged or cut off after {len(known)} files; make it again")
    except (InputError, OSError):
        raise
    except Exception as error:  # hostile archives make tarfile raise almost anything, by recursion too
        why = first_line(error)
        raise InputError(
            f"{path} cannot be read in place ({why}); give a zip, an uncompressed tar, or unpack it"
        ) from None


class Chosen:
    """Some of the files, by their numbers, sorted; names are given without what all begin with (`within`)."""

    def __init__(self, files: Files, numbers: NDArray[np.int64], *, within: str = "") -> None:
        self._files, self.numbers, cut = files, numbers, len(os.fsencode(within))
        self.names = Names.of(os.fsencode(files.names[i])[cut:] for i in numbers.tolist())
        self.closed, self.within = files.closed, within or files.within
        self.shard_ends = tuple(np.searchsorted(numbers, files.shard_ends).tolist())
        self.digest = hashlib.sha256(files.digest.encode() + numbers.tobytes()).hexdigest()
        self.place = files.place

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        sizes = self._files.sizes
        return None if sizes is None else sizes[self.numbers]

    @classmethod
    def beginning(cls, files: Files, prefix: str) -> Chosen:
        """Those whose names begin so, without that beginning."""
        numbers = [i for i, name in enumerate(files.names) if name.startswith(prefix)]
        return cls(files, np.array(numbers, np.int64), within=prefix)

    def read(self, i: int) -> bytes:
        return self._files.read(int(self.numbers[i]))

    def stamp(self, i: int) -> bytes | None:
        return self._files.stamp(int(self.numbers[i]))


def _is_zip(path: Path) -> bool:
    """By its beginning: a tar may end with a zip."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def _shown(name: str) -> bool:
    """An image, in no hidden folder."""
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
    return not hidden and os.fsencode(name).lower().endswith(EXTENSIONS)
