"""Images per second, from files to standardized views, into a model that does nothing.

    python -m benchmarks.loader FOLDER [--size 96] [--stored 96] [--photographs N] [--views 2,8] [--workers 2]
        [--rounds 3] [--batch 64]

FOLDER holds JPEG files. frossl reads them as they are, and packed at --stored pixels; Lightly by its
LightlyDataset, SimCLR's transform (V of it) and torch's DataLoader with as many workers as frossl has
threads. Each round goes through the images once with every variant, in turn; reported are images per second
(the median) and the ratio to Lightly within a round, with the range. The last line printed is one JSON
object.

--photographs N: of FOLDER's images, put together as N JPEG files of the size of ImageNet's (480 × 384).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

import frossl
import frossl.compat  # before Lightly, which imports torchvision
from frossl.augment import Augment, view_set
from frossl.data import Loader, open_dataset
from frossl.data import sources as decoding
from frossl.data.decode import open_image
from frossl.engine.build import best_view_kernel

Pass = Callable[[], int]
"""Go through the images once; how many there were."""


def ours(data: Path, V: int, size: int, batch: int, stored: int) -> Pass:
    dataset = open_dataset(data, size=stored)
    specs = [replace(spec, size=size) for spec in view_set("symmetric", size=size, views=V)]
    mean, std = dataset.statistics
    augment = Augment(specs, mean=mean, std=std, kernel=best_view_kernel("cpu"))
    epoch = 0

    def go() -> int:
        nonlocal epoch
        loader = Loader(dataset.train.source, batch_size=batch, epochs=1, seed=epoch)
        epoch += 1
        return sum(len(augment(images, clock)[0][0]) for images, clock in loader.batches())

    return go


def lightly(data: Path, V: int, size: int, batch: int, workers: int) -> Pass:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightly.data import LightlyDataset
        from lightly.transforms.multi_view_transform import MultiViewTransform
        from lightly.transforms.simclr_transform import SimCLRViewTransform

    transform = MultiViewTransform([SimCLRViewTransform(input_size=size) for _ in range(V)])
    dataset = LightlyDataset(str(data), transform=transform)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True
    )
    return lambda: sum(len(views[0]) for views, *_ in loader)


def photographs(folder: Path, count: int, out: Path) -> Path:
    """Mosaics of 5 × 4 images of 96 pixels: files as long to decode as photographs of that size."""
    names, chosen = sorted(folder.rglob("*.jpg")), random.Random(0)
    out.mkdir()
    for number in range(count):
        mosaic = Image.new("RGB", (480, 384))
        for place, name in enumerate(chosen.sample(names, 20)):
            with open_image(name) as image:
                mosaic.paste(image.convert("RGB").resize((96, 96)), (place % 5 * 96, place // 5 * 96))
        mosaic.save(out / f"{number:05d}.jpg", quality=90)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--views", default="2,8")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--stored", type=int, default=96)
    parser.add_argument("--photographs", type=int, metavar="N")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(options.workers)
    decoding.DECODED_CACHE_BYTES = 0  # every pass decodes, as with data that do not fit in memory
    found, stored = [], options.stored
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder
        if options.photographs:
            folder = photographs(folder, options.photographs, Path(place) / "photographs")
        packed = frossl.pack(folder, out=Path(place) / "packed", size=stored, quiet=True)
        for V in map(int, options.views.split(",")):
            common = (V, options.size, options.batch)
            variants: dict[str, Pass] = {
                "Lightly": lightly(folder, *common, options.workers),
                "frossl, JPEG": ours(folder, *common, stored),
                "frossl, packed": ours(packed, *common, stored),
            }
            speeds: dict[str, list[float]] = {name: [] for name in variants}
            for number in range(options.rounds + 1):
                for name, go in variants.items():
                    began = time.perf_counter()
                    speed = go() / (time.perf_counter() - began)
                    if number:  # the first round starts workers and compiles
                        speeds[name].append(speed)
            print(f"\nV = {V}\n\n| | images/s | times Lightly |\n|---|---|---|")
            for name, values in speeds.items():
                ratios = [a / b for a, b in zip(values, speeds["Lightly"], strict=True)]
                spread = f"{statistics.median(ratios):.1f} ({min(ratios):.1f}–{max(ratios):.1f})"
                print(f"| {name} | {statistics.median(values):.0f} | {spread} |", flush=True)
                row = {"V": V, "name": name, "images_per_second": values, "ratios": ratios}
                found.append(row)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
