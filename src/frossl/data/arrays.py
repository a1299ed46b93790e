"""Arrays of images in NumPy's own files."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frossl.data.dataset import IMAGENET, Dataset, Part, Statistics
from frossl.data.labels import Labels, named_labels
from frossl.data.sources import ArraySource
from frossl.errors import InputError
from frossl.types import Batch


def open_array(path: Path, *, keep: bool = True) -> Dataset:
    """uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W) in a .npy file; in an .npz file as `images` or
    `train_images` (and `test_images`), with `labels` or `train_labels` (and `test_labels`) if there are.

    keep: in memory; else those of a .npy file are read from there.
    """
    try:
        return _opened(path, keep=keep)
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is no array of images ({error}); expected uint8 (N, H, W, C)") from None


def _opened(path: Path, *, keep: bool) -> Dataset:
    content = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(content, np.ndarray):
        source = ArraySource(as_tensor(_checked(path, content))) if keep else MappedSource(path)
        return array_dataset(source, str(path))
    known = {name.removeprefix("train_"): name for name in content.files if not name.startswith("test_")}
    if "images" not in known:
        raise InputError(f"{path} holds {', '.join(content.files)}; expected `images` or `train_images`")
    names = tuple(map(str, content["class_names"])) if "class_names" in content.files else None

    def part_of(images: str, labels: str | None, learned: Labels | None = None) -> Part:
        source = ArraySource(as_tensor(_checked(path, content[images])))
        if labels is None or labels not in content.files:
            return Part(source, None)
        values = content[labels].reshape(-1)
        if len(values) != len(source):
            raise InputError(
                f"{path} holds {len(source)} {images} and {len(values)} {labels}; give one for each"
            )
        known_names = names or (learned.names if learned and values.dtype.kind in "US" else None)
        return Part(source, _labels(path, values, known_names))

    train = part_of(known["images"], known.get("labels"))
    has_test = "test_images" in content.files
    test = part_of("test_images", "test_labels", train.labels) if has_test else None
    if test is not None and test.source.channels != train.source.channels:
        raise InputError(f"{path} holds test images of other channels; give the same for both")
    return Dataset(str(path), train, test, _statistics(train))


class MappedSource:
    """Images that stay in their .npy file. It is mapped anew for every batch: pages that were read would
    count as memory of this process until somebody else needs it."""

    shard_ends = ()
    names = None

    def __init__(self, path: Path) -> None:
        self.path = path
        images, status = self._images(), path.stat()
        self._count, self.channels, self.size = len(images), images.shape[1], min(images.shape[2:])
        known = (images.shape, images.strides, status.st_size, status.st_mtime_ns)
        self.digest = hashlib.sha256(repr(known).encode()).hexdigest()

    def __len__(self) -> int:
        return self._count

    def read(self, ids: Tensor) -> Batch:
        return Batch(torch.from_numpy(np.ascontiguousarray(self._images()[ids.numpy()])), ids)

    def name(self, id: int) -> str:
        return f"image {id}"

    def content(self, id: int) -> bytes:
        return bytes(self._images()[id])

    def subset(self, ids: Tensor) -> ArraySource:
        return ArraySource(self.read(ids).images)

    def bad_files(self) -> dict[str, str]:
        return {}

    def _images(self) -> NDArray[np.uint8]:
        content = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return _channels_first(_checked(self.path, content))


def _checked(path: Path, array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise InputError(f"{path} holds {array.dtype} {array.shape}; expected uint8 (N, H, W, C)")
    if len(array) < 2 or 0 in array.shape:
        raise InputError(f"{path} holds {array.shape}; give at least two images")
    return array


def _channels_first(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W): there are fewer channels than pixels."""
    if array.ndim == 3:
        return array[:, None]
    return array.transpose(0, 3, 1, 2) if array.shape[-1] < array.shape[1] else array


def as_tensor(array: NDArray[np.uint8]) -> Tensor:
    """Images in any of these orders, in memory, (N, C, H, W)."""
    return torch.from_numpy(np.array(_channels_first(array), order="C"))


def array_dataset(source: ArraySource | MappedSource, name: str = "an array") -> Dataset:
    """Images without labels."""
    part = Part(source, None)
    return Dataset(name, part, None, _statistics(part))


def _labels(path: Path, values: NDArray[Any], names: tuple[str, ...] | None) -> Labels | None:
    """Numbers from 0 on, negative ones for none; or the names themselves."""
    if values.dtype.kind in "US":
        return named_labels([str(value) for value in values.tolist()], names)
    if values.dtype.kind not in "iuf" or not np.array_equal(values, np.trunc(values)):
        raise InputError(f"{path} holds labels of {values.dtype}; give whole numbers or names")
    numbers = torch.from_numpy(values.astype(np.int64)).clamp_min(-1)
    count = int(numbers.max()) + 1
    if names is not None and len(names) < count:
        raise InputError(f"{path} holds {count} classes and {len(names)} class_names; give one for each")
    return Labels(numbers, names or tuple(map(str, range(count))))


def _statistics(part: Part) -> Statistics:
    """ImageNet's for three channels, as good as any for photographs; a half and a quarter for others."""
    channels = part.source.channels
    return IMAGENET if channels == 3 else ((0.5,) * channels, (0.25,) * channels)
