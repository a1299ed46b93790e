"""What a user calls data -> parts to learn from and to be tested on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from frossl.data.arrays import open_array
from frossl.data.dataset import IMAGENET, Dataset, Part
from frossl.data.files import ArchivedFiles, Chosen, Files, FolderFiles, read_list
from frossl.data.index import Found, index_folder
from frossl.data.labels import Labels, class_folder_labels
from frossl.data.named import NAMED, cache_root
from frossl.data.pack import is_packed, open_packed
from frossl.data.sources import FileSource, typical_size
from frossl.errors import InputError, unknown

TEST_PARTS = ("val", "test")
EXPECTED = "give a folder, a list (.txt, .csv), an archive (.zip, .tar), an array (.npy, .npz) or a name"


def open_dataset(
    source: str | Path,
    *,
    size: int | None = None,
    largest: int = 256,
    max_bad: float = 0.01,
    found: Found | None = None,
) -> Dataset:
    """A folder of images, a list of paths (.txt, .csv), an archive (.zip, .tar), a folder of tar archives
    (shards of WebDataset), an array (.npy, .npz), what `pack` has written, or a named data set.

    `size` is what images of files are scaled to, if given; else their typical size up to `largest`. Arrays
    and named data sets keep theirs. max_bad: see `FileSource`. found: told how many files there are so far.
    """
    name = str(source)
    if not name.strip():
        raise InputError(f"no data given; {EXPECTED}")
    if name in NAMED:
        return NAMED[name]()
    path = Path(source).expanduser()
    if not path.exists():
        if os.sep in name or "." in name:
            raise InputError(f"there is no folder or file {name}; {EXPECTED}")
        raise unknown("folder or data set", name, NAMED)
    try:
        if path.suffix.lower() in (".npy", ".npz"):
            return open_array(path)
        if is_packed(path):
            return open_packed(path)
        parts = _parts_of(path, found)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check it") from None
    return _of_files(path, parts, size=size, largest=largest, max_bad=max_bad)


PartFiles = tuple[Files, Labels | None]


def _parts_of(path: Path, found: Found | None) -> list[PartFiles]:
    """The files to learn from and their labels, and, if there are any, those to be tested on."""
    if path.is_dir():
        shards = sorted(path.glob("*.tar"))
        if shards and not any(entry.is_dir() for entry in os.scandir(path)):
            return [_archived(ArchivedFiles(shards))]
        return _folders(path, found)
    suffix = path.suffix.lower()
    if suffix in (".txt", ".csv"):
        files, given = read_list(path)
        return [(files, _named(given))]
    if suffix in (".zip", ".tar"):
        return _split(*_archived(ArchivedFiles([path])))
    raise InputError(f"{path} is a file of another kind; {EXPECTED}")


def _folders(root: Path, found: Found | None) -> list[PartFiles]:
    """All images below `root`; with `train/` and `val/` or `test/` in it, those as parts."""
    tests = [root / name for name in TEST_PARTS if (root / name).is_dir()]
    roots = [root / "train", tests[0]] if (root / "train").is_dir() and tests else [root]
    parts: list[PartFiles] = []
    names: tuple[str, ...] | None = None
    for part in roots:
        index = index_folder(part, cache=cache_root() / "index", found=found)
        labels = class_folder_labels(index.names, names)
        names = labels.names if labels else None
        parts.append((FolderFiles(part, index), labels))
    return parts


def _archived(files: ArchivedFiles) -> PartFiles:
    """Labels from folders, or from the texts beside the images of a shard (`0001.jpg`, `0001.cls`)."""
    if files.texts:
        return files, _named([files.texts.get(name.rpartition(".")[0] + ".cls") for name in files.names])
    return files, class_folder_labels(files.names)


def _split(files: Files, labels: Labels | None) -> list[PartFiles]:
    """An archive that holds `train/` and `val/` or `test/` is read as those parts."""
    tops = {name.partition("/")[0] for name in files.names}
    test = next((name for name in TEST_PARTS if name in tops), None)
    if "train" not in tops or test is None:
        return [(files, labels)]
    parts: list[PartFiles] = []
    names: tuple[str, ...] | None = None
    for top in ("train", test):
        chosen = Chosen(files, top + "/")
        labels = class_folder_labels(chosen.names, names)
        names = labels.names if labels else None
        parts.append((chosen, labels))
    return parts


def _named(given: Sequence[str | None]) -> Labels | None:
    """Labels by their names, in the order of the names."""
    names = tuple(sorted({label for label in given if label is not None}))
    if len(names) < 2:
        return None
    number = {name: i for i, name in enumerate(names)}
    return Labels(torch.tensor([-1 if label is None else number[label] for label in given]), names)


def _of_files(
    path: Path, parts: list[PartFiles], *, size: int | None, largest: int, max_bad: float
) -> Dataset:
    (files, labels), *rest = parts
    if not len(files.names):
        raise InputError(f"there are no images in {path}; expected .jpg, .png, .webp, .bmp or .tif files")
    if len(files.names) < 2:
        raise InputError(f"{path} holds one image; give at least two")
    size = size or min(largest, typical_size(files))
    test = None
    if rest and len(rest[0][0].names):
        test = Part(FileSource(rest[0][0], size=size, max_bad=max_bad), rest[0][1])
    return Dataset(str(path), Part(FileSource(files, size=size, max_bad=max_bad), labels), test, IMAGENET)
