"""Data sets by name: downloaded through torchvision, or read from the user's folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from frossl.data.dataset import CIFAR10, CIFAR100, FASHION_MNIST, STL10, Dataset, Split, Statistics
from frossl.data.decode import open_image
from frossl.data.files import ListedFiles, SubsetFiles
from frossl.data.labels import Labels, named_labels
from frossl.data.layouts import SplitFiles, cache_root, folder_splits
from frossl.data.sources import ArraySource
from frossl.errors import FrosslError, InputError

MINI_TRAIN, MINI_TEST = 500, 100
"""Training and test images per class of cifar10-mini."""


@dataclass(frozen=True)
class NamedDataset:
    """Data set that is opened by name."""

    about: str
    """Description in one line."""
    open: Callable[[Path | None], Dataset | list[SplitFiles]]
    """Function that opens it from the user's folder; None for the cache, with a download if possible."""


def _fetched(name: str, kind: str, root: Path | None, **arguments: Any) -> Any:
    """Open a data set of torchvision from the user's folder, else from the cache, downloading if needed."""
    import frossl.compat  # noqa: F401
    import torchvision.datasets as known  # isort: skip

    place = root or cache_root()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # torchvision prints; standard output may be JSON
            return getattr(known, kind)(place, download=root is None, **arguments)
    except (OSError, RuntimeError) as error:
        if root is not None:
            raise InputError(f"{root} does not hold {name} as torchvision keeps it ({error})") from None
        raise FrosslError(
            f"{name} could not be fetched to {place}: {error}; "
            "check the network, or give the folder where you have it with --root"
        ) from None


def _pixels(data: Any) -> Tensor:
    """Return the images of a torchvision data set, (N, H, W) or (N, H, W, C), as uint8 (N, C, H, W)."""
    images = torch.as_tensor(data.data)
    return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()


def _arrays(name: str, kind: str, statistics: Statistics) -> Callable[[Path | None], Dataset]:
    """Return a function that opens a data set that torchvision loads into memory, with two splits."""

    def open_dataset(root: Path | None) -> Dataset:
        def split(train: bool) -> Split:
            data = _fetched(name, kind, root, train=train)
            return Split(
                ArraySource(_pixels(data)), Labels(torch.as_tensor(data.targets), tuple(data.classes))
            )

        return Dataset(name, split(True), split(False), statistics)

    return open_dataset


def _stl10(root: Path | None) -> Dataset:
    """Open STL-10: the train split has the 5,000 labelled images first, then the 100,000 unlabelled ones."""

    def split(name: str) -> Split:
        data = _fetched("stl10", "STL10", root, split=name)
        images = torch.from_numpy(np.ascontiguousarray(data.data))
        return Split(ArraySource(images), Labels(torch.as_tensor(data.labels).long(), tuple(data.classes)))

    return Dataset("stl10", split("train+unlabeled"), split("test"), STL10)


def _eurosat(root: Path | None) -> list[SplitFiles]:
    _fetched("eurosat", "EuroSAT", root)
    return folder_splits((root or cache_root()) / "eurosat" / "2750")


def _imagenette(root: Path | None) -> list[SplitFiles]:
    if root is not None and (root / "train").is_dir():
        return _class_folders("imagenette", 10)(root)
    _fetched("imagenette", "Imagenette", root, size="160px")
    return folder_splits((root or cache_root()) / "imagenette2-160")


def _class_folders(name: str, classes: int) -> Callable[[Path | None], list[SplitFiles]]:
    """Return a function that opens a data set that cannot be downloaded: `train/CLASS/` and `val/CLASS/` in a
    folder."""

    def open_dataset(root: Path | None) -> list[SplitFiles]:
        place = root or cache_root() / name
        for split in ("train", "val"):
            found = _subfolders(place / split)
            if len(found) != classes:
                raise InputError(
                    f"{place / split} holds {len(found)} class folders, and {name} has {classes}; give the "
                    f"folder that holds train/CLASS/ and val/CLASS/ with --root"
                )
        return folder_splits(place)

    return open_dataset


def _imagenet100(root: Path | None) -> list[SplitFiles]:
    """Open ImageNet-100: the classes of contrastive multiview coding (Tian et al., 2019) from a folder of all
    of ImageNet, or a folder of any hundred classes."""
    place = root or cache_root() / "imagenet100"
    if len(_subfolders(place / "train")) != 1000:
        return _class_folders("imagenet100", 100)(place)
    listed = resources.files("frossl") / "data" / "imagenet100.txt"
    splits = _class_folders("imagenet", 1000)(place)
    return [_of_classes(split, listed.read_text().split()) for split in splits]


def _of_classes(split: SplitFiles, classes: Sequence[str]) -> SplitFiles:
    """Select the files of some classes."""
    files, labels = split
    if labels is None or not set(classes) <= set(labels.names):
        raise InputError("the class folders are not named as ImageNet's (n01440764, …); rename them")
    selected = named_labels([labels.names[value] for value in labels.values.tolist()], sorted(classes))
    assert selected is not None
    numbers = (selected.values >= 0).nonzero()[:, 0]
    return SubsetFiles(files, numbers.numpy()), Labels(selected.values[numbers], selected.names)


def _tiny_imagenet(root: Path | None) -> list[SplitFiles]:
    """Open Tiny ImageNet as distributed: `val/val_annotations.txt` holds the labels of `val/images`."""
    place = root or cache_root() / "tiny-imagenet-200"
    annotations = place / "val" / "val_annotations.txt"
    if not annotations.is_file() or len(_subfolders(place / "train")) != 200:
        raise InputError(
            f"{place} does not hold Tiny ImageNet (200 folders in train/, and {annotations.name} in val/); "
            "give the folder tiny-imagenet-200 with --root"
        )
    (files, labels), *_ = folder_splits(place / "train")
    rows = [line.split("\t") for line in annotations.read_text(encoding="utf-8").splitlines() if line]
    test_labels = named_labels([row[1] for row in rows], labels.names if labels else None)
    return [(files, labels), (ListedFiles(place / "val" / "images", [row[0] for row in rows]), test_labels)]


def _subfolders(folder: Path) -> list[str]:
    return [entry.name for entry in os.scandir(folder) if entry.is_dir()] if folder.is_dir() else []


CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def balanced(labels: Tensor, per_class: int) -> Tensor:
    """Select the first `per_class` ids of every class of CIFAR-10; image i of the result has class i % 10.

    Args:
        labels: Class number of each image.
        per_class: Number of images of each class.
    """
    return torch.stack(
        [(labels == c).nonzero()[:per_class, 0] for c in range(len(CIFAR10_NAMES))], 1
    ).flatten()


def _cifar10_mini(root: Path | None) -> Dataset:
    """Open cifar10-mini from the sheet in a clone of the repository, else select the images from CIFAR-10."""
    sheet = mini_sheet()
    if sheet is not None:
        images = read_sheet(sheet)
        train, test = images[: 10 * MINI_TRAIN], images[10 * MINI_TRAIN :]
    else:
        full_train, full_test = (_fetched("cifar10", "CIFAR10", root, train=train) for train in (True, False))
        train = _pixels(full_train)[balanced(torch.tensor(full_train.targets), MINI_TRAIN)]
        test = _pixels(full_test)[balanced(torch.tensor(full_test.targets), MINI_TEST)]

    def split(images: Tensor) -> Split:
        return Split(ArraySource(images), Labels(torch.arange(len(images)) % 10, CIFAR10_NAMES))

    return Dataset("cifar10-mini", split(train), split(test), CIFAR10)


def mini_sheet() -> Path | None:
    """Return the sheet of cifar10-mini in a clone (this one or the working folder); None without one."""
    name = Path("examples", "data", "cifar10-mini.webp")
    candidates = (Path(__file__).parents[3] / name, Path.cwd() / name)
    return next((path for path in candidates if path.is_file()), None)


def read_sheet(path: Path, *, side: int = 32) -> Tensor:
    """Read images from one picture of tiles, row by row.

    Args:
        path: The picture.
        side: Pixels along each side of a tile.

    Returns:
        Images, uint8 (N, 3, side, side).
    """
    with open_image(path) as picture:
        pixels = torch.from_numpy(np.asarray(picture.convert("RGB")).copy())
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    tiles = pixels.view(rows, side, columns, side, 3).permute(0, 2, 4, 1, 3)
    return tiles.reshape(rows * columns, 3, side, side)


NAMED: dict[str, NamedDataset] = {
    "cifar10-mini": NamedDataset("5,000 + 1,000 images of CIFAR-10; in every clone", _cifar10_mini),
    "cifar10": NamedDataset(
        "50,000 + 10,000 images of 32 px, 10 classes", _arrays("cifar10", "CIFAR10", CIFAR10)
    ),
    "cifar100": NamedDataset(
        "50,000 + 10,000 images of 32 px, 100 classes", _arrays("cifar100", "CIFAR100", CIFAR100)
    ),
    "fashion-mnist": NamedDataset(
        "60,000 + 10,000 gray images of 28 px, 10 classes",
        _arrays("fashion-mnist", "FashionMNIST", FASHION_MNIST),
    ),
    "stl10": NamedDataset(
        "105,000 images of 96 px, 5,000 of them labelled, + 8,000; takes 3 GB of memory", _stl10
    ),
    "eurosat": NamedDataset("27,000 satellite images of 64 px, 10 classes", _eurosat),
    "imagenette": NamedDataset("9,469 + 3,925 photographs, 10 classes of ImageNet", _imagenette),
    "tiny-imagenet": NamedDataset(
        "100,000 + 10,000 images of 64 px, 200 classes; give --root", _tiny_imagenet
    ),
    "imagenet100": NamedDataset("100 classes of ImageNet: of CMC's list, or those in --root", _imagenet100),
    "imagenet": NamedDataset("1,281,167 + 50,000 photographs; give --root", _class_folders("imagenet", 1000)),
}
