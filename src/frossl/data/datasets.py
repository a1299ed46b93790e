"""What a user calls data: a folder, or the name of a data set -> parts to learn from and to be tested on."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from frossl.data.labels import Labels, class_folder_labels
from frossl.data.sources import ArraySource, FolderSource, Source, find_images, typical_size
from frossl.errors import FrosslError, InputError, unknown

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10: Statistics = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100: Statistics = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))

MINI_TRAIN, MINI_TEST = 500, 100  # images per class of cifar10-mini


@dataclass(frozen=True)
class Part:
    source: Source
    labels: Labels | None


@dataclass(frozen=True)
class Dataset:
    name: str
    train: Part
    test: Part | None
    statistics: Statistics
    """Mean and deviation of each channel, in [0, 1]."""

    @property
    def size(self) -> int:
        return self.train.source.size


def open_dataset(source: str | Path, *, size: int | None = None, largest: int = 256) -> Dataset:
    """A folder of images or a named data set.

    `size` is what a folder's images are scaled to, if given; else their typical size up to `largest`.
    Named data sets keep theirs.
    """
    name = str(source)
    if not name.strip():
        raise InputError(f"no data given; give a folder of images or one of: {', '.join(NAMED)}")
    if name in NAMED:
        return NAMED[name]()
    path = Path(source).expanduser()
    if path.is_dir():
        return open_folder(path, size=size, largest=largest)
    if path.exists():
        raise InputError(f"{name} is a file; give a folder of images or one of: {', '.join(NAMED)}")
    if os.sep in name or "." in name:
        raise InputError(f"there is no folder {name}; give a folder of images or one of: {', '.join(NAMED)}")
    raise unknown("folder or data set", name, NAMED)


def open_folder(root: Path, *, size: int | None = None, largest: int = 256) -> Dataset:
    """All images below `root`; with `train/` and `val/` or `test/` in it, those as parts."""
    test_root = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    parted = (root / "train").is_dir() and test_root is not None
    train_root = root / "train" if parted else root
    paths = find_images(train_root)
    if not paths:
        raise InputError(
            f"there are no images in {train_root}; expected .jpg, .png, .webp, .bmp or .tif files"
        )
    if len(paths) < 2:
        raise InputError(f"{train_root} holds one image; give at least two")
    size = size or min(largest, typical_size(train_root, paths))
    labels = class_folder_labels(paths)
    test = None
    if parted and test_root is not None and (test_paths := find_images(test_root)):
        test_labels = class_folder_labels(test_paths, labels.names) if labels else None
        test = Part(FolderSource(test_root, test_paths, size=size), test_labels)
    train = Part(FolderSource(train_root, paths, size=size), labels)
    return Dataset(str(root), train, test, IMAGENET)


def cache_root() -> Path:
    """Where data sets are downloaded to: $FROSSL_CACHE, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("FROSSL_CACHE") or Path(base) / "frossl")


def _from_torchvision(name: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], tuple[str, ...]]:
    import frossl.compat  # noqa: F401
    import torchvision.datasets as known  # isort: skip

    kind = {"cifar10": known.CIFAR10, "cifar100": known.CIFAR100}[name]
    root = cache_root()

    def tensors(data: Any) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(data.targets)

    try:
        with contextlib.redirect_stdout(sys.stderr):  # torchvision prints; standard output may be JSON
            train, test = (kind(root, train=part, download=True) for part in (True, False))
        return tensors(train), tensors(test), tuple(train.classes)
    except (OSError, RuntimeError) as error:
        raise FrosslError(
            f"{name} could not be fetched to {root}: {error}; "
            "check the network, or put its files there (or in $FROSSL_CACHE) yourself"
        ) from None


def _cifar(name: str, statistics: Statistics) -> Dataset:
    (train, train_labels), (test, test_labels), names = _from_torchvision(name)
    return Dataset(
        name,
        Part(ArraySource(train), Labels(train_labels, names)),
        Part(ArraySource(test), Labels(test_labels, names)),
        statistics,
    )


CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def balanced(labels: Tensor, per_class: int) -> Tensor:
    """The first `per_class` ids of every class, classes taking turns: id i of the choice has class i % 10."""
    return torch.stack(
        [(labels == c).nonzero()[:per_class, 0] for c in range(len(CIFAR10_NAMES))], 1
    ).flatten()


def cifar10_mini() -> Dataset:
    """5,000 + 1,000 images of CIFAR-10: from the sheet in a clone, else chosen alike from the whole set."""
    sheet = mini_sheet()
    if sheet is not None:
        images = read_sheet(sheet)
        train, test = images[: 10 * MINI_TRAIN], images[10 * MINI_TRAIN :]
    else:
        (train, train_labels), (test, test_labels), _ = _from_torchvision("cifar10")
        train, test = train[balanced(train_labels, MINI_TRAIN)], test[balanced(test_labels, MINI_TEST)]

    def part(images: Tensor) -> Part:
        return Part(ArraySource(images), Labels(torch.arange(len(images)) % 10, CIFAR10_NAMES))

    return Dataset("cifar10-mini", part(train), part(test), CIFAR10)


def mini_sheet() -> Path | None:
    """The sheet of cifar10-mini, if this is a clone or the current folder is one."""
    name = Path("examples", "data", "cifar10-mini.webp")
    candidates = (Path(__file__).parents[3] / name, Path.cwd() / name)
    return next((path for path in candidates if path.is_file()), None)


def read_sheet(path: Path, *, side: int = 32) -> Tensor:
    """uint8 (N, 3, side, side) from one picture of tiles, row by row."""
    with Image.open(path) as picture:
        pixels = torch.from_numpy(np.asarray(picture.convert("RGB")).copy())
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    tiles = pixels.view(rows, side, columns, side, 3).permute(0, 2, 4, 1, 3)
    return tiles.reshape(rows * columns, 3, side, side)


NAMED: dict[str, Callable[[], Dataset]] = {
    "cifar10-mini": cifar10_mini,
    "cifar10": lambda: _cifar("cifar10", CIFAR10),
    "cifar100": lambda: _cifar("cifar100", CIFAR100),
}
