"""Encoded images in a folder, a list of paths, or zip and tar archives, which are read in place.

Each class returns the bytes of an image by its number. They are thread-safe, and read only regular files of
bounded size.
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

from frossl.data.csv_cells import from_cell
from frossl.data.decode import BadFile
from frossl.data.index import EXTENSIONS, Index
from frossl.data.mmap import Names, load_arrays, save_arrays
from frossl.errors import InputError, first_line

MAX_FILE_BYTES = 1 << 30
"""Largest file that is read; no photograph is larger."""


class Files(Protocol):
    """Encoded images by number."""

    @property
    def names(self) -> Names:
        """Names of the images, by number."""

    @property
    def digest(self) -> str:
        """Digest that changes when a number would mean another image."""

    @property
    def unreadable(self) -> dict[str, str]:
        """Folders that could not be listed, with the reason."""

    @property
    def shard_ends(self) -> tuple[int, ...]:
        """Number of the image after the last of each archive, if there are several archives; else empty."""

    @property
    def prefix(self) -> str | None:
        """Folder of the split within the data set (`train/`), left out of the names; None if unknown."""

    @property
    def cache_key(self) -> str:
        """Key under which digests of the files are cached."""

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """Bytes of each file; None if only reading would tell."""

    def read(self, i: int) -> bytes:
        """Return the bytes of an encoded image; raise BadFile if it cannot be read."""

    def stamp(self, i: int) -> bytes | None:
        """Return a stamp that changes when the bytes of a file may have changed; None if only reading would
        tell."""


STAMP_BYTES = 16
"""Length of a stamp."""
RECENT_NS = 2_000_000_000
"""Nanoseconds after a change within which a file may change again without a new modification time."""


def stamp_of(*parts: object) -> bytes:
    """Return the stamp of values that change when a file does."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=STAMP_BYTES).digest()


def _file_stamp(path: bytes) -> bytes | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    changed = (status.st_mtime_ns, status.st_ctime_ns)  # tools that copy files may set the modification time
    if time.time_ns() - max(changed) < RECENT_NS:
        return None
    return stamp_of(os.path.abspath(path), status.st_size, *changed)


def _file_size(path: bytes) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return -1


OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags for opening files; no system has all of them."""


def _open(path: str | bytes | Path) -> io.FileIO:
    """Open a file. Every reader opens its own, so that threads do not share a file position."""
    return io.FileIO(path, opener=lambda name, _: os.open(name, OPEN_FLAGS))


def read_file(path: str | bytes | Path) -> bytes:
    """Read a regular file. Pipes, which may block, and devices, which have no end, are rejected.

    Raises:
        BadFile: If the file cannot be read, is not a regular file, or is larger than `MAX_FILE_BYTES`.
    """
    try:
        with _open(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadFile("not a regular file")
            _check_size(status.st_size)
            return file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise BadFile(error.strerror or str(error)) from None
    except ValueError as error:  # a name with a zero byte
        raise BadFile(str(error)) from None


def _check_size(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise BadFile(f"larger than {MAX_FILE_BYTES >> 20} MB")


class FolderFiles:
    """Files of an index, in its folder."""

    shard_ends = ()

    def __init__(self, root: Path, index: Index, *, prefix: str = "") -> None:
        self.root, self.prefix = root, prefix
        self.names, self.digest, self.unreadable = index.names, index.digest, index.unreadable
        self.sizes, self.cache_key = index.sizes, os.path.realpath(root)

    def read(self, i: int) -> bytes:
        return read_file(self._path(i))

    def stamp(self, i: int) -> bytes | None:
        return _file_stamp(self._path(i))

    def _path(self, i: int) -> bytes:
        return os.path.join(os.fsencode(self.root), self.names.raw(i))


class ListedFiles:
    """Files of a list of paths; relative paths start at `root`, the folder of the list."""

    shard_ends = ()
    prefix = None

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self.names = root, Names.of(map(os.fsencode, names))
        self.unreadable: dict[str, str] = {}
        self.digest = hashlib.sha256(os.fsencode("\0".join(names))).hexdigest()
        self.cache_key = self.digest

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
    """Read a list of files: text with a path on each line, or CSV with columns `path` and optionally `label`.

    Returns:
        The files, and the label of each or None.
    """
    if path.suffix.lower() == ".csv":
        rows = read_table(path)
        return ListedFiles(path.parent, [name for name, _ in rows]), [label for _, label in rows]
    names = [line.strip() for line in _text(path).split("\n") if line.strip()]
    return ListedFiles(path.parent, names), [None] * len(names)


def read_table(path: Path) -> list[tuple[str, str | None]]:
    """Read a CSV file with the columns `path` and optionally `label` as pairs of path and label."""
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


TAR, STORED, DEFLATED, UNSUPPORTED = range(4)
"""Storage of an archive member; UNSUPPORTED is encrypted or has another compression."""


class _Member(NamedTuple):
    """Position and storage of an archive member."""

    start: int
    """Offset of its bytes in a tar, of its local header in a zip."""
    stored: int
    """Bytes in the archive."""
    size: int
    """Bytes when decompressed."""
    archive: int
    """Number of the archive."""
    checksum: int
    """CRC-32 of its bytes in a zip; 0 in a tar."""
    storage: int
    """TAR, STORED, DEFLATED or UNSUPPORTED."""


MEMBER_DTYPES = (np.int64, np.int64, np.int64, np.int32, np.uint32, np.uint8)


class ArchivedFiles:
    """Images in zip or tar archives, read in place.

    With several archives, the name of an image begins with that of its archive.

    Args:
        paths: The archives.
        cache: Folder where the list of their members is cached; None for no cache.
    """

    prefix = ""

    def __init__(self, paths: Sequence[Path], *, cache: Path | None = None) -> None:
        self.unreadable: dict[str, str] = {}
        self._paths = [os.fsencode(path.absolute()) for path in paths]
        stamps = np.array([(s.st_size, s.st_mtime_ns) for s in map(os.stat, paths)], np.int64).reshape(-1)
        key = hashlib.sha256(b"\0".join(map(os.path.realpath, self._paths))).hexdigest()[:32]
        file = cache and cache / f"{key}.archives"
        dtypes = (np.int64, np.int64, *MEMBER_DTYPES, np.int32, np.uint8, np.uint8)
        listing = load_arrays(file, dtypes) if file else None
        if listing is None or not np.array_equal(listing[0], stamps) or not _is_valid(listing, len(paths)):
            listing = [stamps, *self._list_members(paths)]
            if file:
                save_arrays(file, listing)
        self._stamps, self.cache_key = stamps.reshape(-1, 2).tolist(), key
        _, ends, *self._members, self.label_of, names, labels = listing
        self.names = Names(names, ends)
        self.labels = tuple(bytes(labels).decode("utf-8").split("\0")) if len(labels) else ()
        """Class names that `label_of` numbers (−1 = none), from files beside the images (`0001.cls`)."""
        size, archive = self._members[2:4]
        ends_of_archives = np.flatnonzero(np.diff(archive, append=-1)) + 1
        self.shard_ends = tuple(ends_of_archives.tolist()) if len(paths) > 1 else ()
        self.digest, self.sizes = self.names.digest(size), size

    def _list_members(self, paths: Sequence[Path]) -> list[NDArray[Any]]:
        found: list[tuple[bytes, _Member]] = []
        texts: dict[bytes, str] = {}
        for number, path in enumerate(paths):
            prefix = os.fsencode(path.name) + b"/" if len(paths) > 1 else b""
            for given, member in (_zip if _is_zip(path) else _tar)(number, path):
                name = os.path.normpath(given)  # `tar cf x.tar .` writes names that begin with `./`
                if _is_visible_image(name):
                    found.append((prefix + os.fsencode(name), member))
                elif name.endswith(".cls") and member.size < 100:
                    with contextlib.suppress(BadFile, OSError, zlib.error, struct.error):
                        text = self._bytes(member).decode("utf-8", "replace").replace("\0", " ").strip()
                        texts[prefix + os.fsencode(name)] = text
        found.sort()
        labels = sorted(set(texts.values()))
        number_of = {label: i for i, label in enumerate(labels)}
        own_labels = (texts.get(name.rpartition(b".")[0] + b".cls") for name, _ in found)
        label_of = [-1 if label is None else number_of[label] for label in own_labels]
        names = Names.of(name for name, _ in found)
        columns = zip(*(member for _, member in found), strict=True) if found else ((),) * len(MEMBER_DTYPES)
        members = [np.array(column, kind) for column, kind in zip(columns, MEMBER_DTYPES, strict=True)]
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
        if member.storage == UNSUPPORTED:
            raise BadFile("encrypted, or packed in a way that is not read in place")
        if member.size == 0:
            raise BadFile("empty")
        with _open(self._paths[member.archive]) as file:
            file.seek(member.start)
            if member.storage != TAR:
                names, extra = struct.unpack("<HH", file.read(30)[26:30])
                file.seek(names + extra, os.SEEK_CUR)
            data = file.read(member.stored)
        if member.storage == DEFLATED:
            data = zlib.decompressobj(-15).decompress(data, member.size)
        if len(data) != member.size:
            raise BadFile("the archive ends before the image does")
        if member.storage != TAR and zlib.crc32(data) != member.checksum:
            raise BadFile("another checksum than the archive says")
        return data


def _is_valid(listing: Sequence[NDArray[Any]], archives: int) -> bool:
    """Return whether the arrays of a cached listing are consistent."""
    _, ends, *columns, names, labels = listing
    if any(len(column) != len(ends) for column in columns) or not Names(names, ends).is_valid():
        return False
    places, archive, label_of = columns[:3], columns[3], columns[-1]
    known = bytes(labels).count(b"\0") + 1 if len(labels) else 0
    counted = archive.max(initial=0) < archives and label_of.max(initial=-1) < known
    return bool(counted and all(column.min(initial=0) >= 0 for column in (*places, archive)))


def _zip(number: int, path: Path) -> Iterator[tuple[str, _Member]]:
    supported = {zipfile.ZIP_STORED: STORED, zipfile.ZIP_DEFLATED: DEFLATED}
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
            storage = UNSUPPORTED if info.flag_bits & 1 else supported.get(info.compress_type, UNSUPPORTED)
            place = (info.header_offset, info.compress_size, info.file_size)
            yield info.filename, _Member(*place, number, info.CRC, storage)


def _tar(number: int, path: Path) -> Iterator[tuple[str, _Member]]:
    try:
        with tarfile.open(path, "r:") as archive, path.open("rb") as raw:
            known: dict[str, _Member] = {}
            for info in archive:
                if info.isreg():
                    known[info.name] = _Member(info.offset_data, info.size, info.size, number, 0, TAR)
                elif info.islnk() and info.linkname in known:  # a hard link, as tar stores a second name
                    known[info.name] = known[info.linkname]
                else:
                    continue
                yield info.name, known[info.name]
            raw.seek(archive.offset)
            if raw.read(tarfile.BLOCKSIZE) != bytes(
                tarfile.BLOCKSIZE
            ):  # tarfile stops there without an error
                raise InputError(f"{path} is damaged or cut off after {len(known)} files; make it again")
    except (InputError, OSError):
        raise
    except Exception as error:  # hostile archives make tarfile raise almost anything, by recursion too
        why = first_line(error)
        raise InputError(
            f"{path} cannot be read in place ({why}); give a zip, an uncompressed tar, or unpack it"
        ) from None


class SubsetFiles:
    """Some of the files of another object.

    Args:
        files: The other object.
        numbers: Numbers of the files, sorted.
        prefix: Beginning of all names, which is left out of them.
    """

    def __init__(self, files: Files, numbers: NDArray[np.int64], *, prefix: str = "") -> None:
        self._files, self.numbers, cut = files, numbers, len(os.fsencode(prefix))
        self.names = Names.of(os.fsencode(files.names[i])[cut:] for i in numbers.tolist())
        self.unreadable, self.prefix = files.unreadable, prefix or files.prefix
        self.shard_ends = tuple(np.searchsorted(numbers, files.shard_ends).tolist())
        self.digest = hashlib.sha256(files.digest.encode() + numbers.tobytes()).hexdigest()
        self.cache_key = files.cache_key

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        sizes = self._files.sizes
        return None if sizes is None else sizes[self.numbers]

    @classmethod
    def with_prefix(cls, files: Files, prefix: str) -> SubsetFiles:
        """Select the files whose names begin with `prefix`, and leave it out of their names."""
        numbers = [i for i, name in enumerate(files.names) if name.startswith(prefix)]
        return cls(files, np.array(numbers, np.int64), prefix=prefix)

    def read(self, i: int) -> bytes:
        return self._files.read(int(self.numbers[i]))

    def stamp(self, i: int) -> bytes | None:
        return self._files.stamp(int(self.numbers[i]))


def _is_zip(path: Path) -> bool:
    """Return whether a file is a zip, by its first bytes: a tar may end with a zip."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def _is_visible_image(name: str) -> bool:
    """Return whether a name is that of an image, and no part of it is hidden."""
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
    return not hidden and os.fsencode(name).lower().endswith(EXTENSIONS)
