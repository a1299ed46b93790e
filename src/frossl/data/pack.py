"""Packs: folders with every image decoded to raw pixels, its shorter side of one size, read by memory map.

pack.json    version, number of images, their size, a checksum; written last
images.bin   uint8 (C, H, W), one image after the other
sizes.bin    int32 (N, 2), their heights and widths; packs of version 1 have squares only, and no such file
names.npz    names of the files that the images come from
labels.npy   labels, if there are any
test/        the same files for the test split, if there is one
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from frossl.data.dataset import Dataset, Split, Statistics
from frossl.data.decode import Pixels, central_square
from frossl.data.labels import Labels
from frossl.data.mmap import Names
from frossl.data.sources import FileSource, Source, batch_of
from frossl.errors import InputError, first_line
from frossl.runs.folder import remove_if_empty, write_atomically
from frossl.runs.lock import FolderLock, contents, remove_abandoned
from frossl.types import Batch

logger = logging.getLogger("frossl")

VERSION = 2
"""Version of the format, in pack.json."""
READABLE_VERSIONS = (1, 2)
BYTES_PER_SIZE = 8
"""Bytes of the height and width of an image in sizes.bin."""
BLOCK_SIZE = 256
"""Number of images that are written at a time."""


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_statistics(value: object) -> bool:
    """Return whether a value is [mean, std], each a list of finite numbers, the deviations above 0."""
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, list) for part in value):
        return False
    plain = all(type(x) in (int, float) and abs(x) < math.inf for part in value for x in part)
    return plain and all(x > 0 for x in value[1])


def _is_names(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))


PACK_KEYS: dict[str, Callable[[object], bool]] = {
    "images": _is_count,
    "size": _is_count,
    "channels": _is_count,
    "statistics": _is_statistics,
    "classes": _is_names,
    "checksum": lambda value: type(value) is int,
    "source": lambda value: isinstance(value, str),
    "digest": lambda value: isinstance(value, str),
}
"""Keys of `pack.json`, each with a function that returns whether a value is valid."""

Progress = Callable[[int, int], None]
"""Progress callback that receives the numbers of images done and of all images."""


class PackedSource:
    """Source of the images of a pack.

    Args:
        folder: The folder of the pack, or its `test` folder.
        rows: Rows of the images to use; by default all.
    """

    shard_ends = ()
    names = None

    def __init__(self, folder: Path, rows: NDArray[np.int64] | None = None) -> None:
        self.folder, known = folder, _read_description(folder)
        self.size, self.channels, self.digest = known["size"], known["channels"], known["digest"]
        self._sizes = _read_sizes(folder, known)
        self._pixels, self._ends = _map_pixels(folder, self._sizes, self.channels)
        try:
            self._names = Names.read(folder / "names.npz")
            if len(self._names) != known["images"]:
                raise ValueError(f"{len(self._names)} names for {known['images']} images")
        except (OSError, ValueError) as error:
            raise InputError(f"{folder / 'names.npz'} is damaged ({error}); pack the images again") from None
        self._same_size = bool((self._sizes == self._sizes[0]).all())
        self._rows = np.arange(len(self._sizes)) if rows is None else rows
        if rows is not None:
            self.digest = hashlib.sha256(self.digest.encode() + rows.tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, ids: Tensor, *, whole: bool = False) -> Batch:
        rows = self._rows[ids.numpy()]
        if self._same_size:  # one indexing operation is several times faster than a loop
            images = self._pixels.reshape(len(self._sizes), self.channels, *self._sizes[0])
            return Batch(torch.from_numpy((images if whole else central_square(images))[rows]), ids)
        return batch_of([self._image(row) for row in rows], ids, whole=whole)

    def name(self, id: int) -> str:
        return self._names[int(self._rows[id])]

    def content(self, id: int) -> bytes:
        return bytes(self._image(self._rows[id]))

    def subset(self, ids: Tensor) -> PackedSource:
        return PackedSource(self.folder, self._rows[ids.numpy()])

    def bad_files(self) -> dict[str, str]:
        return {}

    def _image(self, row: int) -> Pixels:
        shape = (self.channels, *self._sizes[row].tolist())
        end = int(self._ends[row])
        return self._pixels[end - math.prod(shape) : end].reshape(shape)


def _read_sizes(folder: Path, known: dict[str, Any]) -> NDArray[np.int32]:
    """Return the heights and widths (N, 2) of the images of a pack, whose sum is not larger than its file.

    Numbers in files may be anything, so they are compared before they become sizes of arrays.
    """
    images, size, file = known["images"], known["size"], folder / "images.bin"
    stored = file.stat().st_size if file.is_file() else 0
    if images * known["channels"] * size**2 > stored:
        raise InputError(f"{file} is gone or cut off; pack the images again")
    if known["version"] == 1:
        return np.broadcast_to(np.int32(size), (images, 2))
    file = folder / "sizes.bin"
    sizes = np.fromfile(file, np.int32) if file.is_file() else np.empty(0, np.int32)
    short, long = np.sort(sizes[: len(sizes) // 2 * 2].reshape(-1, 2), axis=1).T
    if len(sizes) != 2 * images or (short != size).any() or (long > stored // size).any():
        raise InputError(f"{file} is gone or damaged; pack the images again")
    return sizes.reshape(-1, 2)


def _map_pixels(
    folder: Path, sizes: NDArray[np.int32], channels: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Memory-map the pixels of a pack; return them, and the place after the last of each image."""
    file = folder / "images.bin"
    ends = np.cumsum(sizes.astype(np.int64).prod(1) * channels)
    if not file.is_file() or file.stat().st_size != ends[-1]:
        raise InputError(f"{file} is gone or cut off; pack the images again")
    return np.memmap(file, np.uint8, "r"), ends


def is_packed(folder: Path) -> bool:
    """Return whether a folder holds a complete pack."""
    return (folder / "pack.json").is_file()


def open_packed(folder: Path) -> Dataset:
    """Open the data set of a pack."""
    test = _open_split(folder / "test") if is_packed(folder / "test") else None
    known = _read_description(folder)
    mean, std = known["statistics"]
    return Dataset(str(folder), _open_split(folder), test, (tuple(mean), tuple(std)))


def _open_split(folder: Path) -> Split:
    source, names = PackedSource(folder), _read_description(folder)["classes"]
    if names is None:
        return Split(source, None)
    try:
        values = npy.open_memmap(folder / "labels.npy", mode="r")
        if values.dtype != np.int64 or values.shape != (len(source),):
            raise ValueError(f"{values.dtype} {values.shape}")
        if not -1 <= values.min() <= values.max() < len(names):
            raise ValueError(f"labels from {values.min()} to {values.max()} of {len(names)} classes")
    except Exception as error:  # hostile headers make numpy raise almost anything
        raise InputError(
            f"{folder / 'labels.npy'} is damaged ({first_line(error)}); pack the images again"
        ) from None
    return Split(source, Labels(torch.from_numpy(np.array(values)), tuple(names)))


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads((folder / "pack.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder / 'pack.json'} cannot be read ({error}); pack the images again") from None
    readable = isinstance(known, dict) and known.get("version") in READABLE_VERSIONS
    if not readable or not known.keys() >= PACK_KEYS.keys():
        raise InputError(f"{folder} was packed by another version of frossl; pack the images again")
    for name, fits in PACK_KEYS.items():
        if not fits(known[name]):
            shown = repr(known[name])[:60]
            raise InputError(f"{folder / 'pack.json'} says {name} = {shown}; pack the images again")
    if [len(numbers) for numbers in known["statistics"]] != [known["channels"]] * 2:
        raise InputError(f"{folder / 'pack.json'} has other statistics than channels; pack the images again")
    return known


def pack(data: Dataset, out: Path, *, progress: Progress | None = None) -> None:
    """Write the decoded images of a data set to a pack.

    An interrupted pack is continued; a complete one is verified. Unreadable files are left out.

    Args:
        data: The data set.
        out: Folder for the pack.
        progress: Callback that receives the numbers of images done and of all images.

    Raises:
        InputError: If the folder holds something else or other images.
    """
    _check_free(out)
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FolderLock(out):
            _pack(data, out, progress)
    finally:
        remove_if_empty(out)


def _pack(data: Dataset, out: Path, progress: Progress | None) -> None:
    for folder in (out, out / "test"):
        remove_abandoned(folder)
    splits = {out: data.train, **({out / "test": data.test} if data.test is not None else {})}
    total, before = sum(len(split.source) for split in splits.values()), 0
    for folder, split in splits.items():

        def report(done: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        folder.mkdir(parents=True, exist_ok=True)
        if is_packed(folder):
            _verify(folder, split.source)
            report(len(split.source))
        else:
            _pack_split(split, folder, data.statistics, report)
        before += len(split.source)


def _pack_split(split: Split, folder: Path, statistics: Statistics, report: Callable[[int], None]) -> None:
    source = split.source
    begun = _read_progress(folder, source)
    written = begun["done"] - len(begun["left_out"])
    _write_json(folder / "begun.json", begun)
    images_file = _open_at(folder / "images.bin", begun["bytes"])
    with images_file, _open_at(folder / "sizes.bin", written * BYTES_PER_SIZE) as sizes_file:
        for start in range(begun["done"], len(source), BLOCK_SIZE):
            ids = torch.arange(start, min(start + BLOCK_SIZE, len(source)))
            batch = source.read(ids, whole=True)
            readable = batch.ids == ids  # another id replaces that of an unreadable file
            images = [image.numpy() for image in batch[readable].unpadded()]
            pixels = b"".join(image.tobytes() for image in images)
            _append(images_file, pixels)
            _append(sizes_file, np.array([image.shape[1:] for image in images], np.int32).tobytes())
            begun["left_out"] += ids[~readable].tolist()
            begun |= {"done": start + len(ids), "checksum": zlib.crc32(pixels, begun["checksum"])}
            begun["bytes"] += len(pixels)
            _write_json(folder / "begun.json", begun)
            report(begun["done"])
    kept = sorted(set(range(len(source))) - set(begun["left_out"]))
    Names.of(os.fsencode(source.name(i)) for i in kept).write(folder / "names.npz")
    if split.labels is not None:
        values = split.labels.values.numpy()[kept]
        write_atomically(folder / "labels.npy", lambda file: np.save(file, values))
    content = {
        "version": VERSION,
        "images": len(kept),
        "size": source.size,
        "channels": source.channels,
        "statistics": statistics,
        "classes": None if split.labels is None else split.labels.names,
        "checksum": begun["checksum"],
        "source": source.digest,
        "digest": hashlib.sha256(f"{source.digest} {source.size} {begun['checksum']}".encode()).hexdigest(),
    }
    _write_json(folder / "pack.json", content)
    (folder / "begun.json").unlink()


def _open_at(path: Path, size: int) -> IO[bytes]:
    """Open a file to append after its first `size` bytes; the rest is cut off."""
    file = path.open("r+b" if size else "wb")
    file.truncate(size)
    file.seek(0, os.SEEK_END)
    return file


def _append(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _read_progress(folder: Path, source: Source) -> dict[str, Any]:
    """Return how far an interrupted pack of the same images came; from the start if there is none."""
    fresh = {
        "source": source.digest,
        "size": source.size,
        "done": 0,
        "bytes": 0,
        "checksum": 0,
        "left_out": [],
    }
    try:
        found: dict[str, Any] = json.loads((folder / "begun.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict) or found.keys() != fresh.keys():
        return fresh
    if not all(type(found[name]) is type(fresh[name]) for name in fresh):
        return fresh
    if not _is_progress(found, len(source)):
        return fresh
    if (found["source"], found["size"]) != (source.digest, source.size):
        return fresh
    written = (found["done"] - len(found["left_out"])) * BYTES_PER_SIZE
    needed = {folder / "images.bin": found["bytes"], folder / "sizes.bin": written}
    there = all(file.is_file() and file.stat().st_size >= size >= 0 for file, size in needed.items())
    return found if there else fresh


def _is_progress(found: dict[str, Any], images: int) -> bool:
    """Return whether the counts of an interrupted pack are possible: the file may be damaged."""
    left_out = found["left_out"]
    plain = all(type(i) is int and 0 <= i < found["done"] for i in left_out)
    return plain and len(set(left_out)) == len(left_out) <= found["done"] <= images


def _check_free(out: Path) -> None:
    """Raise an InputError unless a folder is empty or holds a pack, interrupted or complete."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose another --out")
    if contents(out) and not is_packed(out) and not (out / "begun.json").is_file():
        raise InputError(f"{out} holds something else already; choose another --out")


def _verify(folder: Path, source: Source) -> None:
    known = _read_description(folder)
    if (known["source"], known["size"]) != (source.digest, source.size):
        raise InputError(f"{folder} holds other images, or of another size; choose another --out")
    if known["version"] == 1 and isinstance(source, FileSource):
        logger.warning("%s holds central squares, of version 0.1.0; another --out holds whole images", folder)
    checksum = 0
    with (folder / "images.bin").open("rb") as file:
        while block := file.read(1 << 24):
            checksum = zlib.crc32(block, checksum)
    if checksum != known["checksum"]:
        raise InputError(f"{folder / 'images.bin'} is damaged: another checksum; remove it and pack again")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, lambda file: file.write(json.dumps(content).encode()))
