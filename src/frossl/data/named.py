"""Data sets by their names: fetched through torchvision, or read from a folder that the user has."""

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

from frossl.data.dataset import CIFAR10, CIFAR100, FASHION_MNIST, STL10, Dataset, Part, Statistics
from frossl.data.decode import open_image
from frossl.data.files import Chosen, ListedFiles
from frossl.data.labels import Labels, named_labels
from frossl.data.parts import PartFiles, cache_root, folder_parts
from frossl.data.sources import ArraySource
from frossl.errors import FrosslError, InputError

MINI_TRAIN, MINI_TEST = 500, 100  # images per class of cifar10-mini


@dataclass(frozen=True)
class Named:
    """A data set that has a name."""

    about: str
    """One line."""
    open: Callable[[Path | None], Dataset | list[PartFiles]]
    """From the folder that holds it; None: where it is kept, or fetched to."""


def _fetched(name: str, kind: str, root: Path | None, **arguments: Any) -> Any:
    """A data set of torchvision. One that lies in a folder that the user names is checked, not fetched."""
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
    """uint8 (N, C, H, W) from (N, H, W) or (N, H, W, C)."""
    images = torch.as_tensor(data.data)
    return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()


def _arrays(name: str, kind: str, statistics: Statistics) -> Callable[[Path | None], Dataset]:
    """A data set that torchvision holds in memory, with `train` and test parts."""

    def open_it(root: Path | None) -> Dataset:
        def part(train: bool) -> Part:
            data = _fetched(name, kind, root, train=train)
            return Part(
                ArraySource(_pixels(data)), Labels(torch.as_tensor(data.targets), tuple(data.classes))
            )

        return Dataset(name, part(True), part(False), statistics)

    return open_it


def _stl10(root: Path | None) -> Dataset:
    """The 5,000 labelled images first, the 100,000 unlabelled ones after them."""

    def part(split: str) -> Part:
        data = _fetched("stl10", "STL10", root, split=split)
        images = torch.from_numpy(np.ascontiguousarray(data.data))
        return Part(ArraySource(images), Labels(torch.as_tensor(data.labels).long(), tuple(data.classes)))

    return Dataset("stl10", part("train+unlabeled"), part("test"), STL10)


def _eurosat(root: Path | None) -> list[PartFiles]:
    _fetched("eurosat", "EuroSAT", root)
    return folder_parts((root or cache_root()) / "eurosat" / "2750")


def _imagenette(root: Path | None) -> list[PartFiles]:
    if root is not None and (root / "train").is_dir():
        return _class_folders("imagenette", 10)(root)
    _fetched("imagenette", "Imagenette", root, size="160px")
    return folder_parts((root or cache_root()) / "imagenette2-160")


def _class_folders(name: str, classes: int) -> Callable[[Path | None], list[PartFiles]]:
    """A data set that nobody may hand on, or nobody hosts: `train/CLASS/` and `val/CLASS/` in a folder."""

    def open_it(root: Path | None) -> list[PartFiles]:
        place = root or cache_root() / name
        for part in ("train", "val"):
            found = _subfolders(place / part)
            if len(found) != classes:
                raise InputError(
                    f"{place / part} holds {len(found)} class folders, and {name} has {classes}; give the "
                    f"folder that holds train/CLASS/ and val/CLASS/ with --root"
                )
        return folder_parts(place)

    return open_it


def _imagenet100(root: Path | None) -> list[PartFiles]:
    """The classes that contrastive multiview coding chose (Tian et al., 2019), out of the whole of ImageNet;
    or a folder of a hundred classes as it is."""
    place = root or cache_root() / "imagenet100"
    if len(_subfolders(place / "train")) != 1000:
        return _class_folders("imagenet100", 100)(place)
    listed = resources.files("frossl") / "data" / "imagenet100.txt"
    return [_of_classes(part, listed.read_text().split()) for part in _class_folders("imagenet", 1000)(place)]


def _of_classes(part: PartFiles, classes: Sequence[str]) -> PartFiles:
    """The files of some classes."""
    files, labels = part
    if labels is None or not set(classes) <= set(labels.names):
        raise InputError("the class folders are not named as ImageNet's (n01440764, …); rename them")
    kept = named_labels([labels.names[value] for value in labels.values.tolist()], sorted(classes))
    assert kept is not None
    numbers = (kept.values >= 0).nonzero()[:, 0]
    return Chosen(files, numbers.numpy()), Labels(kept.values[numbers], kept.names)


def _tiny_imagenet(root: Path | None) -> list[PartFiles]:
    """As it is handed out: the labels of `val/images` stand in `val/val_annotations.txt`."""
    place = root or cache_root() / "tiny-imagenet-200"
    annotations = place / "val" / "val_annotations.txt"
    if not annotations.is_file() or len(_subfolders(place / "train")) != 200:
        raise InputError(
            f"{place} does not hold Tiny ImageNet (200 folders in train/, and {annotations.name} in val/); "
            "give the folder tiny-imagenet-200 with --root"
        )
    (files, labels), *_ = folder_parts(place / "train")
    rows = [line.split("\t") for line in annotations.read_text(encoding="utf-8").splitlines() if line]
    held = named_labels([row[1] for row in rows], labels.names if labels else None)
    return [(files, labels), (ListedFiles(place / "val" / "images", [row[0] for row in rows]), held)]


def _subfolders(folder: Path) -> list[str]:
    return [entry.name for entry in os.scandir(folder) if entry.is_dir()] if folder.is_dir() else []


CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def balanced(labels: Tensor, per_class: int) -> Tensor:
    """The first `per_class` ids of every class, classes taking turns: id i of the choice has class i % 10."""
    return torch.stack(
        [(labels == c).nonzero()[:per_class, 0] for c in range(len(CIFAR10_NAMES))], 1
    ).flatten()


def _cifar10_mini(root: Path | None) -> Dataset:
    """From the sheet in a clone, else chosen alike from the whole set."""
    sheet = mini_sheet()
    if sheet is not None:
        images = read_sheet(sheet)
        train, test = images[: 10 * MINI_TRAIN], images[10 * MINI_TRAIN :]
    else:
        whole, held = (_fetched("cifar10", "CIFAR10", root, train=part) for part in (True, False))
        train = _pixels(whole)[balanced(torch.tensor(whole.targets), MINI_TRAIN)]
        test = _pixels(held)[balanced(torch.tensor(held.targets), MINI_TEST)]

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
    with open_image(path) as picture:
        pixels = torch.from_numpy(np.asarray(picture.convert("RGB")).copy())
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    tiles = pixels.view(rows, side, columns, side, 3).permute(0, 2, 4, 1, 3)
    return tiles.reshape(rows * columns, 3, side, side)


NAMED: dict[str, Named] = {
    "cifar10-mini": Named("5,000 + 1,000 images of CIFAR-10; in every clone", _cifar10_mini),
    "cifar10": Named("50,000 + 10,000 images of 32 px, 10 classes", _arrays("cifar10", "CIFAR10", CIFAR10)),
    "cifar100": Named(
        "50,000 + 10,000 images of 32 px, 100 classes", _arrays("cifar100", "CIFAR100", CIFAR100)
    ),
    "fashion-mnist": Named(
        "60,000 + 10,000 gray images of 28 px, 10 classes",
        _arrays("fashion-mnist", "FashionMNIST", FASHION_MNIST),
    ),
    "stl10": Named("105,000 images of 96 px, 5,000 of them labelled, + 8,000; takes 3 GB of memory", _stl10),
    "eurosat": Named("27,000 satellite images of 64 px, 10 classes", _eurosat),
    "imagenette": Named("9,469 + 3,925 photographs, 10 classes of ImageNet", _imagenette),
    "tiny-imagenet": Named("100,000 + 10,000 images of 64 px, 200 classes; give --root", _tiny_imagenet),
    "imagenet100": Named("100 classes of ImageNet: of CMC's list, or those in --root", _imagenet100),
    "imagenet": Named("1,281,167 + 50,000 photographs; give --root", _class_folders("imagenet", 1000)),
}
