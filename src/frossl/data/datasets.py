"""What a user calls data -> parts to learn from and to be tested on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from frossl.data.arrays import open_array
from frossl.data.dataset import IMAGENET, Dataset, Part, with_test
from frossl.data.files import Files, ListedFiles, read_table
from frossl.data.hub import HUB, hub_parts, is_saved
from frossl.data.index import Found
from frossl.data.labels import named_labels
from frossl.data.named import NAMED
from frossl.data.pack import is_packed, open_packed
from frossl.data.parts import EXPECTED, PartFiles, parts_of
from frossl.data.sources import FileSource, typical_size
from frossl.errors import InputError, unknown

SMALLEST = 4
"""Pixels that smaller images are scaled up to."""
LARGEST = 256
"""Pixels that images of files are scaled down to, where nobody asks for another size."""


def open_dataset(
    source: str | Path,
    *,
    root: str | Path | None = None,
    fraction: float = 1.0,
    fraction_seed: int = 0,
    size: int | None = None,
    largest: int = LARGEST,
    max_bad: float = 0.01,
    labels: str | Path | None = None,
    test: str | Path | None = None,
    workers: int | None = None,
    keep: bool = True,
    found: Found | None = None,
) -> Dataset:
    """A folder of images, a list of paths (.txt, .csv), an archive (.zip, .tar), a folder of tar archives
    (shards of WebDataset), an array (.npy, .npz), what `pack` has written, a data set of Hugging Face
    (`hf:NAME`, or the folder that it was saved to), or a data set by its name, which may lie in `root`.

    fraction: this share of every class is learned from, chosen by `fraction_seed`. size: what images of
    files are scaled to, if given; else their typical size up to `largest`. Arrays keep theirs. max_bad: see
    `FileSource`. labels: a CSV file, `path,label`, in place of class folders. test: images to be tested on,
    in place of the data set's own test part. workers: threads that decode. keep: False for those who read
    every image once: arrays stay in their .npy files, and decoded images are forgotten. found: told how many
    files there are so far.
    """
    reading = Reading(size=size, largest=largest, max_bad=max_bad, workers=workers, keep=keep)
    dataset = _whole(str(source), reading, root=root, found=found)
    if labels is not None:
        dataset = labelled_by(dataset, Path(os.path.expanduser(labels)))
    if test is not None:
        other = _whole(str(test), replace(reading, size=dataset.size), root=None, found=found)
        dataset = with_test(dataset, other)
    if fraction == 1:
        return dataset
    train = dataset.train.fraction(fraction, seed=fraction_seed)
    if len(train.source) < 2:
        raise InputError(f"a fraction of {fraction:g} leaves {len(train.source)} image; give more")
    return replace(dataset, train=train)


@dataclass(frozen=True)
class Reading:
    """How files become images."""

    size: int | None
    largest: int
    max_bad: float
    workers: int | None
    keep: bool

    def source(self, files: Files, size: int) -> FileSource:
        return FileSource(files, size=size, max_bad=self.max_bad, workers=self.workers, keep=self.keep)


def _whole(name: str, reading: Reading, *, root: str | Path | None, found: Found | None) -> Dataset:
    if not name.strip():
        raise InputError(f"no data given; {EXPECTED}")
    place = Path(os.path.expanduser(root)) if root is not None else None
    if place is not None and name not in NAMED:
        raise InputError(
            f"root is the folder of a data set that has a name, and {name} is none; leave it out"
        )
    if place is not None and not place.is_dir():
        raise InputError(f"there is no folder {place}; give the one that holds {name}")
    path = Path(os.path.expanduser(name))
    try:
        if name in NAMED:
            opened = NAMED[name].open(place)
        elif name.startswith(HUB):
            opened = hub_parts(name)
        else:
            opened = _at(path, found, keep=reading.keep)
    except OSError as error:
        raise InputError(f"{name} cannot be read ({error.strerror or error}); check it") from None
    if isinstance(opened, Dataset):
        return opened
    return _of_files(name, opened, reading)


def _at(path: Path, found: Found | None, *, keep: bool) -> Dataset | list[PartFiles]:
    if not path.exists():
        if os.sep in str(path) or "." in str(path):
            raise InputError(f"there is no folder or file {path}; {EXPECTED}")
        raise unknown("folder or data set", str(path), NAMED)
    if path.suffix.lower() in (".npy", ".npz"):
        return open_array(path, keep=keep)
    if is_packed(path):
        return open_packed(path)
    if is_saved(path):
        return hub_parts(path)
    return parts_of(path, found)


def _of_files(name: str, parts: list[PartFiles], reading: Reading) -> Dataset:
    (files, labels), *rest = parts
    if not len(files.names):
        raise InputError(f"there are no images in {name}; expected .jpg, .png, .webp, .bmp or .tif files")
    if len(files.names) < 2:
        raise InputError(f"{name} holds one image; give at least two")
    size = reading.size or max(SMALLEST, min(reading.largest, typical_size(files)))
    test = None
    if rest and len(rest[0][0].names):
        test = Part(reading.source(rest[0][0], size), rest[0][1])
    return Dataset(name, Part(reading.source(files, size), labels), test, IMAGENET)


def listed_dataset(
    paths: Sequence[str | Path], *, size: int | None = None, largest: int = LARGEST, max_bad: float = 0.01
) -> Dataset:
    """Images by their paths, in this order, without labels; the rest is as in `open_dataset`."""
    files = ListedFiles(Path(), [os.path.expanduser(path) for path in paths])
    reading = Reading(size=size, largest=largest, max_bad=max_bad, workers=None, keep=True)
    source = reading.source(files, size or min(largest, typical_size(files)))
    return Dataset("a list of paths", Part(source, None), None, IMAGENET)


def labelled_by(data: Dataset, table: Path) -> Dataset:
    """`data` with the labels of a CSV file, `path,label`. A path is what it is below the data, or absolute;
    an image that is not named has no label."""
    if not table.is_file():
        raise InputError(f"there is no file {table}; give a CSV file with the columns path and label")
    given, root = dict(read_table(table)), Path(data.name)

    def relabelled(part: Part, classes: Sequence[str] | None) -> Part:
        names = part.source.names
        if names is None:
            raise InputError(f"{data.name} has no file names that {table} could mean; leave it out")
        labels = [given.get(name, given.get(str(root / name))) for name in names]
        return Part(part.source, named_labels(labels, classes))

    train = relabelled(data.train, None)
    if train.labels is None:
        name = data.train.source.name(0)
        raise InputError(
            f"{table} labels no two classes of {data.name}; give paths as they are there, such as {name!r}"
        )
    test = data.test and relabelled(data.test, train.labels.names)
    return replace(data, train=train, test=test)
