"""Decode once: a folder with every image as raw pixels of one size, read by memory map.

pack.json    what it is, how many images, their size, a checksum; written last
images.bin   uint8 (N, C, S, S), one after the other
names.npz    where each came from
labels.npy   their labels, if there are any
test/        the same again for the images to be tested on, if there are any
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from frossl.data.dataset import Dataset, Part, Statistics
from frossl.data.kept import Names
from frossl.data.labels import Labels
from frossl.data.sources import Source
from frossl.errors import InputError, first_line
from frossl.runs.folder import remove_if_empty, write_atomically
from frossl.runs.lock import FolderLock, contents, remove_abandoned
from frossl.types import Batch

VERSION = 1
BLOCK = 256


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_statistics(value: object) -> bool:
    """[mean, std], each a list of numbers that work."""
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, list) for part in value):
        return False
    plain = all(type(x) in (int, float) and abs(x) < math.inf for part in value for x in part)
    return plain and all(x > 0 for x in value[1])


def _is_names(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))


DESCRIBED: dict[str, Callable[[object], bool]] = {
    "images": _is_count,
    "size": _is_count,
    "channels": _is_count,
    "statistics": _is_statistics,
    "classes": _is_names,
    "checksum": lambda value: type(value) is int,
    "source": lambda value: isinstance(value, str),
    "digest": lambda value: isinstance(value, str),
}
"""What `pack.json` says, and what each value must be."""

Progress = Callable[[int, int], None]
"""Told how many images are done, of how many."""


class PackedSource:
    """Images of a packed folder."""

    shard_ends = ()
    names = None

    def __init__(self, folder: Path, rows: NDArray[np.int64] | None = None) -> None:
        """rows: those of its images that count; all, if not given."""
        self.folder, known = folder, _described(folder)
        self.size, self.channels, self.digest = known["size"], known["channels"], known["digest"]
        file, shape = folder / "images.bin", (known["images"], self.channels, self.size, self.size)
        if not file.is_file() or file.stat().st_size != math.prod(shape):
            raise InputError(f"{file} is gone or cut off; pack the images again")
        self._images: NDArray[np.uint8] = np.memmap(file, np.uint8, "r", shape=shape)
        try:
            self._names = Names.read(folder / "names.npz")
            if len(self._names) != known["images"]:
                raise ValueError(f"{len(self._names)} names for {known['images']} images")
        except (OSError, ValueError) as error:
            raise InputError(f"{folder / 'names.npz'} is damaged ({error}); pack the images again") from None
        self._rows = np.arange(len(self._images)) if rows is None else rows
        if rows is not None:
            self.digest = hashlib.sha256(self.digest.encode() + rows.tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, ids: Tensor) -> Batch:
        return Batch(torch.from_numpy(self._images[self._rows[ids.numpy()]]), ids)

    def name(self, id: int) -> str:
        return self._names[int(self._rows[id])]

    def content(self, id: int) -> bytes:
        return bytes(self._images[self._rows[id]])

    def subset(self, ids: Tensor) -> PackedSource:
        return PackedSource(self.folder, self._rows[ids.numpy()])

    def bad_files(self) -> dict[str, str]:
        return {}


def is_packed(folder: Path) -> bool:
    return (folder / "pack.json").is_file()


def open_packed(folder: Path) -> Dataset:
    test = _part(folder / "test") if is_packed(folder / "test") else None
    known = _described(folder)
    mean, std = known["statistics"]
    return Dataset(str(folder), _part(folder), test, (tuple(mean), tuple(std)))


def _part(folder: Path) -> Part:
    source, names = PackedSource(folder), _described(folder)["classes"]
    if names is None:
        return Part(source, None)
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
    return Part(source, Labels(torch.from_numpy(np.array(values)), tuple(names)))


def _described(folder: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads((folder / "pack.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder / 'pack.json'} cannot be read ({error}); pack the images again") from None
    if not isinstance(known, dict) or known.get("version") != VERSION or not known.keys() >= DESCRIBED.keys():
        raise InputError(f"{folder} was packed by another version of frossl; pack the images again")
    for name, fits in DESCRIBED.items():
        if not fits(known[name]):
            said = repr(known[name])[:60]
            raise InputError(f"{folder / 'pack.json'} says {name} = {said}; pack the images again")
    if [len(numbers) for numbers in known["statistics"]] != [known["channels"]] * 2:
        raise InputError(f"{folder / 'pack.json'} has other statistics than channels; pack the images again")
    return known


def pack(data: Dataset, out: Path, *, progress: Progress | None = None) -> None:
    """Write the images of a data set as they are read. What was begun goes on; what is there is checked.

    Files that cannot be read are left out.
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
    parts = {out: data.train, **({out / "test": data.test} if data.test is not None else {})}
    total, before = sum(len(part.source) for part in parts.values()), 0
    for part in parts.values():
        height, width = part.source.read(torch.arange(1)).images.shape[-2:]
        if height != width:
            raise InputError(f"the images have {height} × {width} pixels; squares are packed")
    for folder, part in parts.items():

        def told(done: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        folder.mkdir(parents=True, exist_ok=True)
        if is_packed(folder):
            _verify(folder, part.source)
            told(len(part.source))
        else:
            _pack_part(part, folder, data.statistics, told)
        before += len(part.source)


def _pack_part(part: Part, folder: Path, statistics: Statistics, told: Callable[[int], None]) -> None:
    source = part.source
    begun = _begun(folder, source)
    written = begun["done"] - len(begun["left_out"])
    _write_json(folder / "begun.json", begun)
    with (folder / "images.bin").open("r+b" if written else "wb") as file:
        file.truncate(written * source.channels * source.size**2)
        file.seek(0, os.SEEK_END)
        for start in range(begun["done"], len(source), BLOCK):
            ids = torch.arange(start, min(start + BLOCK, len(source)))
            batch = source.read(ids)
            itself = batch.ids == ids
            pixels = batch.images[itself].numpy().tobytes()
            file.write(pixels)
            file.flush()
            os.fsync(file.fileno())
            begun["left_out"] += ids[~itself].tolist()
            begun |= {"done": start + len(ids), "checksum": zlib.crc32(pixels, begun["checksum"])}
            _write_json(folder / "begun.json", begun)
            told(begun["done"])
    kept = sorted(set(range(len(source))) - set(begun["left_out"]))
    Names.of(os.fsencode(source.name(i)) for i in kept).write(folder / "names.npz")
    if part.labels is not None:
        values = part.labels.values.numpy()[kept]
        write_atomically(folder / "labels.npy", lambda file: np.save(file, values))
    content = {
        "version": VERSION,
        "images": len(kept),
        "size": source.size,
        "channels": source.channels,
        "statistics": statistics,
        "classes": None if part.labels is None else part.labels.names,
        "checksum": begun["checksum"],
        "source": source.digest,
        "digest": hashlib.sha256(f"{source.digest} {source.size} {begun['checksum']}".encode()).hexdigest(),
    }
    _write_json(folder / "pack.json", content)
    (folder / "begun.json").unlink()


def _begun(folder: Path, source: Source) -> dict[str, Any]:
    """How far an earlier attempt came with the same images, if there was one."""
    fresh = {"source": source.digest, "size": source.size, "done": 0, "checksum": 0, "left_out": []}
    try:
        found: dict[str, Any] = json.loads((folder / "begun.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict) or found.keys() != fresh.keys():
        return fresh
    if not all(type(found[name]) is type(fresh[name]) for name in fresh) or not _is_begun(found, len(source)):
        return fresh
    if (found["source"], found["size"]) != (source.digest, source.size):
        return fresh
    file = folder / "images.bin"
    written = (found["done"] - len(found["left_out"])) * source.channels * source.size**2
    return found if file.is_file() and file.stat().st_size >= written else fresh


def _is_begun(found: dict[str, Any], images: int) -> bool:
    """Counts that can be: a folder may hold anything."""
    left_out = found["left_out"]
    plain = all(type(i) is int and 0 <= i < found["done"] for i in left_out)
    return plain and len(set(left_out)) == len(left_out) <= found["done"] <= images


def _check_free(out: Path) -> None:
    """A folder of a pack, begun or complete, or an empty one."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose another --out")
    if contents(out) and not is_packed(out) and not (out / "begun.json").is_file():
        raise InputError(f"{out} holds something else already; choose another --out")


def _verify(folder: Path, source: Source) -> None:
    known = _described(folder)
    if (known["source"], known["size"]) != (source.digest, source.size):
        raise InputError(f"{folder} holds other images, or of another size; choose another --out")
    checksum = 0
    with (folder / "images.bin").open("rb") as file:
        while block := file.read(1 << 24):
            checksum = zlib.crc32(block, checksum)
    if checksum != known["checksum"]:
        raise InputError(f"{folder / 'images.bin'} is damaged: another checksum; remove it and pack again")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, lambda file: file.write(json.dumps(content).encode()))
