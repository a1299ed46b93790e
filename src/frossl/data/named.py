"""Data sets by their names."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from frossl.data.dataset import CIFAR10, CIFAR100, Dataset, Part, Statistics
from frossl.data.labels import Labels
from frossl.data.sources import ArraySource
from frossl.errors import FrosslError

MINI_TRAIN, MINI_TEST = 500, 100  # images per class of cifar10-mini


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
