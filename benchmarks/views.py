"""Views per second on one core: frossl beside torchvision, kornia and albumentations.

    python -m benchmarks.views [--rounds 5] [--sizes 32,64,96,224] [--images FOLDER]

The same images (uint8; 256 px for views of 224, else of the views' own size) and the same parameters for all:
crop scale 0.08–1, bicubic, flip, jitter 0.4/0.4/0.2/0.1 with probability 0.8, gray 0.2, blur 0.5 of deviation
0.1–2, mean and deviation. Peers make one view at a time, but kornia, which takes a batch. Each round times
every variant once, in turn; reported are views per second (the median) and the ratio to torchvision on PIL
images within a round, with the quartiles. Peers that are not installed are left out (pip install
'frossl[bench]'). The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

import frossl.compat  # noqa: F401  before torchvision
from frossl.augment import Augment, ViewSpec
from frossl.config import ViewKernel
from frossl.data import open_dataset
from frossl.data.dataset import IMAGENET
from frossl.types import Batch, Clock

BATCH = 64
SPEC = ViewSpec(
    flip=0.5, jitter=0.8, brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, gray=0.2, blur=0.5
)
MEAN, STD = IMAGENET

Make = Callable[[int], None]
"""Make the views of so many images."""


def ours(images: Tensor, size: int, kernel: ViewKernel = "torch") -> Make:
    augment = Augment((replace(SPEC, size=size),), mean=MEAN, std=STD, kernel=kernel)
    step = 0

    def make(count: int) -> None:
        nonlocal step
        for start in range(0, count, BATCH):
            ids = torch.arange(start, min(start + BATCH, count))
            augment(Batch(images[ids % len(images)], ids), Clock(step, 10**6, step, 0))
            step += 1

    return make


def _kernel(size: int) -> int:
    return min(13, size // 2 * 2 - 1)


def on_pil(images: Tensor, size: int) -> Make:
    from torchvision import transforms as T

    pictures = [T.functional.to_pil_image(image) for image in images]
    transform = T.Compose(
        [
            T.RandomResizedCrop(size, interpolation=T.InterpolationMode.BICUBIC),
            T.RandomHorizontalFlip(),
            T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
            T.RandomGrayscale(0.2),
            T.RandomApply([T.GaussianBlur(_kernel(size), (0.1, 2.0))], 0.5),
            T.ToTensor(),
            T.Normalize(MEAN, STD),
        ]
    )
    return lambda count: [transform(pictures[i % len(pictures)]) for i in range(count)] and None


def on_tensors(images: Tensor, size: int) -> Make:
    from torchvision.transforms import InterpolationMode, v2

    transform = v2.Compose(
        [
            v2.RandomResizedCrop(size, interpolation=InterpolationMode.BICUBIC, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(_kernel(size), (0.1, 2.0))], 0.5),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    return lambda count: [transform(images[i % len(images)]) for i in range(count)] and None


def on_kornia(images: Tensor, size: int) -> Make:
    import kornia.augmentation as K

    transform = K.AugmentationSequential(
        K.RandomResizedCrop((size, size), resample="BICUBIC", cropping_mode="slice"),
        K.RandomHorizontalFlip(),
        K.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomGaussianBlur((_kernel(size),) * 2, (0.1, 2.0), p=0.5),
        K.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
    )

    def make(count: int) -> None:
        for start in range(0, count, BATCH):
            ids = torch.arange(start, min(start + BATCH, count)) % len(images)
            transform(images[ids].float() / 255)

    return make


def on_albumentations(images: Tensor, size: int) -> Make:
    import albumentations as A
    import cv2

    cv2.setNumThreads(1)
    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in images]
    transform = A.Compose(
        [
            A.RandomResizedCrop((size, size), interpolation=cv2.INTER_CUBIC),
            A.HorizontalFlip(),
            A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.8, 1.2), (-0.1, 0.1), p=0.8),
            A.ToGray(p=0.2),
            A.GaussianBlur(_kernel(size), (0.1, 2.0), p=0.5),
            A.Normalize(MEAN, STD),
            A.ToTensorV2(),
        ]
    )
    return lambda count: [transform(image=arrays[i % len(arrays)]) for i in range(count)] and None


VARIANTS = {
    "torchvision, PIL": (on_pil, "torchvision"),
    "torchvision v2, tensors": (on_tensors, "torchvision"),
    "kornia": (on_kornia, "kornia"),
    "albumentations": (on_albumentations, "albumentations"),
    "frossl, torch": (ours, "frossl"),
    "frossl, numba": (partial(ours, kernel="numba"), "numba"),
}


def pictures(size: int, folder: Path | None) -> Tensor:
    """Photographs of that size: of a folder, or CIFAR-10 mini scaled up."""
    if folder is not None:
        return open_dataset(folder, size=size).train.source.read(torch.arange(BATCH)).images
    small = open_dataset("cifar10-mini").train.source.read(torch.arange(BATCH)).images
    scaled = torch.nn.functional.interpolate(small.float(), (size, size), mode="bicubic", antialias=True)
    return scaled.round().clamp(0, 255).byte()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="32,64,96,224")
    parser.add_argument("--images", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for size in map(int, options.sizes.split(",")):
        images = pictures(256 if size == 224 else size, options.images)
        variants = {
            name: make(images, size) for name, (make, package) in VARIANTS.items() if find_spec(package)
        }
        counts = {}
        for name, make in variants.items():  # warmed up, and about half a second each
            make(BATCH)
            began = time.perf_counter()
            make(BATCH)
            counts[name] = max(BATCH, int(BATCH * 0.5 / (time.perf_counter() - began)) // BATCH * BATCH)
        speeds: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(options.rounds):
            for name, make in variants.items():
                began = time.perf_counter()
                make(counts[name])
                speeds[name].append(counts[name] / (time.perf_counter() - began))
        print(f"\n{size} px from {images.shape[-1]} px\n")
        print("| | views/s | times torchvision on PIL |\n|---|---|---|")
        for name, values in speeds.items():
            ratios = [a / b for a, b in zip(values, speeds["torchvision, PIL"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            median = statistics.median(values)
            print(f"| {name} | {median:,.0f} | {middle:.1f} ({low:.1f}–{high:.1f}) |", flush=True)
            found.append({"size": size, "name": name, "views_per_second": round(median), "ratio": middle})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
