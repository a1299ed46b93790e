"""Data sets from arrays of images in .npy and .npz files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from frossl.data.dataset import IMAGENET, Dataset, Split, Statistics
from frossl.data.decode import central_square
from frossl.data.labels import Labels, named_labels
from frossl.data.sources import ArraySource
from frossl.errors import InputError, first_line
from frossl.machine import memory
from frossl.text import gigabytes
from frossl.types import Batch

COLOR_CHANNELS = (3, 4)
USUAL_CHANNELS = (1, *COLOR_CHANNELS)
"""Numbers of channels by which the channel axis of an array is recognized."""


def open_array(path: Path, *, keep: bool = True) -> Dataset:
    """Open a data set from arrays of uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W).

    Args:
        path: A .npy file, or an .npz file with `images` or `train_images` (and `test_images`), and optionally
            `labels` or `train_labels` (and `test_labels`) and `class_names`.
        keep: Whether the images of a .npy file are loaded into memory; if not, they are read from the file.

    Raises:
        InputError: If the file holds no such arrays, or an .npz file is larger than the free memory.
    """
    try:
        return _open(path, keep=keep)
    except (InputError, OSError):
        raise
    except Exception as error:  # hostile headers make numpy raise almost anything
        raise InputError(
            f"{path} is no array of images ({first_line(error)}); expected uint8 (N, H, W, C)"
        ) from None


def _open(path: Path, *, keep: bool) -> Dataset:
    with path.open("rb") as file:
        if file.read(2) == b"PK":
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                _check_memory(path, content)
                return _open_npz(path, content)
    source = ArraySource(as_tensor(_check_images(path, _mapped(path)))) if keep else MappedSource(path)
    return array_dataset(source, str(path))


def _mapped(path: Path) -> NDArray[Any]:
    """Memory-map the array of a .npy file."""
    return npy.open_memmap(path, mode="r")


def _open_npz(path: Path, content: Any) -> Dataset:
    known = {name.removeprefix("train_"): name for name in content.files if not name.startswith("test_")}
    if "images" not in known:
        raise InputError(f"{path} holds {', '.join(content.files)}; expected `images` or `train_images`")
    values = {
        name: content[name].reshape(-1)
        for name in (known.get("labels"), "test_labels")
        if name is not None and name in content.files
    }
    names = tuple(map(str, content["class_names"])) if "class_names" in content.files else None
    classes = _Classes(path, list(values.values()), names)

    def split_of(images: str, labels: str | None) -> Split:
        source = ArraySource(as_tensor(_check_images(path, content[images])))
        if labels not in values:
            return Split(source, None)
        if len(values[labels]) != len(source):
            raise InputError(
                f"{path} holds {len(source)} {images} and {len(values[labels])} {labels}; give one for each"
            )
        return Split(source, classes.labels(values[labels]))

    train = split_of(known["images"], known.get("labels"))
    test = split_of("test_images", "test_labels") if "test_images" in content.files else None
    if test is not None and test.source.channels != train.source.channels:
        raise InputError(f"{path} holds test images of other channels; give the same for both")
    return Dataset(str(path), train, test, _statistics(train))


def _check_memory(path: Path, content: Any) -> None:
    """Raise an InputError if the arrays of an .npz file, which are loaded whole, do not fit into memory; a
    small file may claim any size."""
    _, free = memory()
    claimed = sum(member.file_size for member in content.zip.infolist())
    if free is not None and claimed > free:
        raise InputError(
            f"{path} holds {gigabytes(claimed)} of arrays, and {gigabytes(free)} of memory are free; "
            "give its images as a .npy file, which can be larger"
        )


class MappedSource:
    """Source of images that stay in their .npy file.

    The file is mapped anew for every batch: otherwise pages that were read would count as memory of this
    process until the system reclaims them.
    """

    shard_ends = ()
    names = None

    def __init__(self, path: Path) -> None:
        self.path = path
        images, status = self._images(), path.stat()
        self._count, self.channels, self.size = len(images), images.shape[1], min(images.shape[2:])
        identity = (images.shape, images.strides, status.st_size, status.st_mtime_ns)
        self.digest = hashlib.sha256(repr(identity).encode()).hexdigest()

    def __len__(self) -> int:
        return self._count

    def read(self, ids: Tensor, *, whole: bool = False) -> Batch:
        images = self._images() if whole else central_square(self._images())
        return Batch(torch.from_numpy(np.ascontiguousarray(images[ids.numpy()])), ids)

    def name(self, id: int) -> str:
        return f"image {id}"

    def content(self, id: int) -> bytes:
        return bytes(self._images()[id])

    def subset(self, ids: Tensor) -> ArraySource:
        return ArraySource(self.read(ids, whole=True).images)

    def bad_files(self) -> dict[str, str]:
        return {}

    def _images(self) -> NDArray[np.uint8]:
        return _channels_first(_check_images(self.path, _mapped(self.path)))


def _check_images(path: Path, array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise InputError(f"{path} holds {array.dtype} {array.shape}; expected uint8 (N, H, W, C)")
    if len(array) < 2 or 0 in array.shape:
        raise InputError(f"{path} holds {array.shape}; give at least two images")
    return array


def _channels_first(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images (N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W).

    The channel axis is the only one that has a usual number of channels; if both or neither has, the shorter.
    """
    first, last = array.shape[1], array.shape[-1]
    if array.ndim == 3 and last in COLOR_CHANNELS and first > max(COLOR_CHANNELS):
        raise InputError(
            f"an array {array.shape} is one image in color; give several as (N, H, W, {last}), or gray ones "
            "as (N, H, W, 1)"
        )
    if array.ndim == 3:
        return array[:, None]
    usual = (first in USUAL_CHANNELS, last in USUAL_CHANNELS)
    channels_last = usual[1] if usual[0] != usual[1] else last < first
    return array.transpose(0, 3, 1, 2) if channels_last else array


def as_tensor(array: NDArray[np.uint8]) -> Tensor:
    """Copy images (N, H, W), (N, H, W, C) or (N, C, H, W) to a tensor (N, C, H, W)."""
    return torch.from_numpy(np.array(_channels_first(array), order="C"))


def array_dataset(source: ArraySource | MappedSource, name: str = "an array") -> Dataset:
    """Return a data set of images without labels.

    Args:
        source: The images.
        name: Name of the data set.
    """
    split = Split(source, None)
    return Dataset(name, split, None, _statistics(split))


class _Classes:
    """Classes of the labels of all splits.

    Labels are class names or integers (−1 for none). Integers are indices into `class_names` if the file has
    them; otherwise the numbers themselves, however large, are the names of the classes.
    """

    def __init__(self, path: Path, given: list[NDArray[Any]], names: tuple[str, ...] | None) -> None:
        self.names: tuple[str, ...] = names or ()
        self.texts = any(values.dtype.kind in "US" for values in given)
        if self.texts:
            self.names = names or tuple(sorted({str(value) for values in given for value in values.tolist()}))
        elif given:
            self.numbers = self._class_numbers(path, given, names)

    def _class_numbers(
        self, path: Path, given: list[NDArray[Any]], names: tuple[str, ...] | None
    ) -> NDArray[Any]:
        """Return the number in the file that stands for each class."""
        for values in given:
            if values.dtype.kind not in "iuf" or not np.all(
                np.isfinite(values) & (values == np.trunc(values))
            ):
                raise InputError(f"{path} holds labels of {values.dtype}; give whole numbers or names")
        distinct = np.unique(np.concatenate([np.unique(values) for values in given]))
        numbers: NDArray[Any] = distinct[distinct != -1]
        if names is None:
            self.names = tuple(str(int(number)) for number in numbers)
            return numbers
        if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < len(names):
            raise InputError(
                f"{path} holds labels from {numbers[0]:.0f} to {numbers[-1]:.0f} and {len(names)} "
                "class_names; give one for each, from 0 on"
            )
        return np.arange(len(names))

    def labels(self, values: NDArray[Any]) -> Labels | None:
        if self.texts:
            return named_labels([str(value) for value in values.tolist()], self.names)
        rows = np.searchsorted(self.numbers, values)
        return Labels(torch.from_numpy(np.where(values == -1, -1, rows).astype(np.int64)), self.names)


def _statistics(split: Split) -> Statistics:
    """Return mean and deviation: ImageNet's for three channels, which suit photographs; else ½ and ¼."""
    channels = split.source.channels
    return IMAGENET if channels == 3 else ((0.5,) * channels, (0.25,) * channels)
