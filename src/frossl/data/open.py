"""Open a data set from whatever names it: a path or a name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from frossl.data.arrays import open_array
from frossl.data.dataset import IMAGENET, Dataset, Split, with_test
from frossl.data.files import Files, ListedFiles, read_table
from frossl.data.huggingface import HUB, huggingface_splits, is_saved
from frossl.data.index import Found
from frossl.data.labels import named_labels
from frossl.data.layouts import EXPECTED_SOURCES, SplitFiles, find_splits
from frossl.data.named import NAMED
from frossl.data.pack import is_packed, open_packed
from frossl.data.sources import FileSource, typical_size
from frossl.errors import InputError, unknown

MIN_SIZE = 4
"""Smallest default size of decoded images in pixels; smaller images are scaled up to it."""
LARGEST = 256
"""Largest default size of decoded images in pixels; larger images are scaled down to it."""


DEFAULT_MAX_BAD = 0.01
"""Largest share of unreadable files."""


class DataSettings(TypedDict, total=False):
    """Settings of a data set beside its source; see `open_dataset`."""

    root: str | Path | None
    fraction: float
    fraction_seed: int
    size: int | None
    max_bad: float
    labels: str | Path | None
    test: str | Path | None
    workers: int | None


def open_dataset(
    source: str | Path,
    *,
    largest: int = LARGEST,
    keep: bool = True,
    found: Found | None = None,
    **settings: Unpack[DataSettings],
) -> Dataset:
    """Open a data set.

    Args:
        source: A folder of images, a list of paths (.txt, .csv), an archive (.zip, .tar), a folder of tar
            archives (shards of WebDataset), an array (.npy, .npz), a folder that `pack` has written, a data
            set of Hugging Face (`hf:NAME`, or the folder that it was saved to), or the name of a data set.
        root: Folder that holds a data set given by name.
        fraction: Share of every class that is used for training.
        fraction_seed: Seed that selects the images of `fraction`.
        size: Pixels along the shorter side that images of files are resized to; by default their typical
            size, at most `largest`. Arrays keep their size.
        largest: Largest default size.
        max_bad: Largest share of unreadable files; see `FileSource`.
        labels: CSV file with the columns `path` and `label`, in place of class folders.
        test: Images of the test split, in place of the data set's own.
        workers: Number of threads that decode files; by default one for each core.
        keep: Whether images are cached in memory. With False, for callers that read every image once, arrays
            stay in their .npy files, and decoded images are not cached.
        found: Callback that receives the number of files found so far.

    Raises:
        InputError: If the source does not exist, cannot be read, or has too few images.
    """
    reading = ReadOptions(
        size=settings.get("size"),
        largest=largest,
        max_bad=settings.get("max_bad", DEFAULT_MAX_BAD),
        workers=settings.get("workers"),
        keep=keep,
    )
    dataset = _open(str(source), reading, root=settings.get("root"), found=found)
    if (labels := settings.get("labels")) is not None:
        dataset = labelled_by(dataset, Path(os.path.expanduser(labels)))
    if (test := settings.get("test")) is not None:
        other = _open(str(test), replace(reading, size=dataset.size), root=None, found=found)
        dataset = with_test(dataset, other)
    if (fraction := settings.get("fraction", 1.0)) == 1:
        return dataset
    train = dataset.train.fraction(fraction, seed=settings.get("fraction_seed", 0))
    if len(train.source) < 2:
        raise InputError(f"a fraction of {fraction:g} leaves {len(train.source)} image; give more")
    return replace(dataset, train=train)


@dataclass(frozen=True)
class ReadOptions:
    """Options for decoding files; see `open_dataset`."""

    size: int | None
    largest: int
    max_bad: float
    workers: int | None
    keep: bool

    def source(self, files: Files, size: int) -> FileSource:
        """Return a source that decodes files to images of `size` pixels."""
        return FileSource(files, size=size, max_bad=self.max_bad, workers=self.workers, keep=self.keep)


def _open(name: str, reading: ReadOptions, *, root: str | Path | None, found: Found | None) -> Dataset:
    if not name.strip():
        raise InputError(f"no data given; {EXPECTED_SOURCES}")
    folder = Path(os.path.expanduser(root)) if root is not None else None
    if folder is not None and name not in NAMED:
        raise InputError(
            f"root is the folder of a data set that has a name, and {name} is none; leave it out"
        )
    if folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder}; give the one that holds {name}")
    path = Path(os.path.expanduser(name))
    try:
        if name in NAMED:
            opened = NAMED[name].open(folder)
        elif name.startswith(HUB):
            opened = huggingface_splits(name)
        else:
            opened = _open_path(path, found, keep=reading.keep)
    except OSError as error:
        raise InputError(f"{name} cannot be read ({error.strerror or error}); check it") from None
    if isinstance(opened, Dataset):
        return opened
    return _from_files(name, opened, reading)


def _open_path(path: Path, found: Found | None, *, keep: bool) -> Dataset | list[SplitFiles]:
    if not path.exists():
        if os.sep in str(path) or "." in str(path):
            raise InputError(f"there is no folder or file {path}; {EXPECTED_SOURCES}")
        raise unknown("folder or data set", str(path), NAMED)
    if path.suffix.lower() in (".npy", ".npz"):
        return open_array(path, keep=keep)
    if is_packed(path):
        return open_packed(path)
    if is_saved(path):
        return huggingface_splits(path)
    return find_splits(path, found)


def _from_files(name: str, splits: list[SplitFiles], reading: ReadOptions) -> Dataset:
    (files, labels), *rest = splits
    if not len(files.names):
        raise InputError(f"there are no images in {name}; expected .jpg, .png, .webp, .bmp or .tif files")
    if len(files.names) < 2:
        raise InputError(f"{name} holds one image; give at least two")
    size = reading.size or max(MIN_SIZE, min(reading.largest, typical_size(files)))
    test = None
    if rest and len(rest[0][0].names):
        test = Split(reading.source(rest[0][0], size), rest[0][1])
    return Dataset(name, Split(reading.source(files, size), labels), test, IMAGENET)


def listed_dataset(
    paths: Sequence[str | Path], *, size: int | None = None, largest: int = LARGEST, max_bad: float = 0.01
) -> Dataset:
    """Open a data set of images by their paths, in the given order, without labels.

    Args:
        paths: Paths of the images.
        size: Pixels along the shorter side that images are resized to; by default their typical size.
        largest: Largest default size.
        max_bad: Largest share of unreadable files; see `FileSource`.
    """
    files = ListedFiles(Path(), [os.path.expanduser(path) for path in paths])
    reading = ReadOptions(size=size, largest=largest, max_bad=max_bad, workers=None, keep=True)
    source = reading.source(files, size or min(largest, typical_size(files)))
    return Dataset("a list of paths", Split(source, None), None, IMAGENET)


def labelled_by(data: Dataset, table: Path) -> Dataset:
    """Return a data set with the labels of a CSV file.

    Args:
        data: The data set.
        table: CSV file with the columns `path` and `label`. Paths are relative to the data set, or absolute;
            images that are not listed have no label.
    """
    if not table.is_file():
        raise InputError(f"there is no file {table}; give a CSV file with the columns path and label")
    given, root = dict(read_table(table)), Path(data.name)

    def relabelled(split: Split, classes: Sequence[str] | None) -> Split:
        names = split.source.names
        if names is None:
            raise InputError(f"{data.name} has no file names that {table} could mean; leave it out")
        labels = [given.get(name, given.get(str(root / name))) for name in names]
        return Split(split.source, named_labels(labels, classes))

    train = relabelled(data.train, None)
    if train.labels is None:
        name = data.train.source.name(0)
        raise InputError(
            f"{table} labels no two classes of {data.name}; give paths as they are there, such as {name!r}"
        )
    test = data.test and relabelled(data.test, train.labels.names)
    return replace(data, train=train, test=test)
