"""Arrays of images in NumPy's own files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frossl.data.dataset import IMAGENET, Dataset, Part, Statistics
from frossl.data.labels import Labels
from frossl.data.sources import ArraySource
from frossl.errors import InputError


def open_array(path: Path) -> Dataset:
    """uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W) in a .npy file; in an .npz file as `images` or
    `train_images` (and `test_images`), with `labels` or `train_labels` (and `test_labels`) if there are."""
    try:
        content = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is no array of images ({error}); expected uint8 (N, H, W, C)") from None
    if isinstance(content, np.ndarray):
        part = Part(ArraySource(_as_images(path, content)), None)
        return Dataset(str(path), part, None, _statistics(content))
    known = {name.removeprefix("train_"): name for name in content.files if not name.startswith("test_")}
    if "images" not in known:
        raise InputError(f"{path} holds {', '.join(content.files)}; expected `images` or `train_images`")
    names = tuple(map(str, content["class_names"])) if "class_names" in content.files else None

    def part_of(images: str, labels: str | None) -> Part:
        values = content[labels] if labels is not None and labels in content.files else None
        return Part(ArraySource(_as_images(path, content[images])), _numbered(values, names))

    test = part_of("test_images", "test_labels") if "test_images" in content.files else None
    train = part_of(known["images"], known.get("labels"))
    return Dataset(str(path), train, test, _statistics(content[known["images"]]))


def _as_images(path: Path, array: NDArray[Any]) -> Tensor:
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise InputError(f"{path} holds {array.dtype} {array.shape}; expected uint8 (N, H, W, C)")
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[-1] in (1, 3, 4) and array.shape[1] not in (1, 3, 4):
        array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.array(array, order="C"))


def _numbered(values: NDArray[Any] | None, names: tuple[str, ...] | None) -> Labels | None:
    if values is None:
        return None
    numbers = torch.from_numpy(np.asarray(values).astype(np.int64).reshape(-1))
    return Labels(numbers, names or tuple(map(str, range(int(numbers.max()) + 1))))


def _statistics(array: NDArray[Any]) -> Statistics:
    """ImageNet's for three channels, as good as any for photographs; a half and a quarter for others."""
    channels = 1 if array.ndim == 3 else min(array.shape[1], array.shape[-1])
    return IMAGENET if channels == 3 else ((0.5,) * channels, (0.25,) * channels)
