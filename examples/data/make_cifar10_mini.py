"""Make cifar10-mini.webp from the whole of CIFAR-10.

    python examples/data/make_cifar10_mini.py cifar10.npz

The .npz holds train_images and test_images (uint8, N × 32 × 32 × 3) with train_labels and test_labels, in the
data set's own order. The choice is fixed: the first 500 training and 100 test images of every class, classes
taking turns, so that tile i shows class i % 10. Tiles run row by row, 100 to a row, training images first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from frossl.data.named import MINI_TEST, MINI_TRAIN, balanced, read_sheet

COLUMNS = 100


def main(source: str) -> None:
    with np.load(source) as data:
        parts = [
            data[f"{part}_images"][balanced(torch.from_numpy(data[f"{part}_labels"]), count).numpy()]
            for part, count in (("train", MINI_TRAIN), ("test", MINI_TEST))
        ]
    tiles = np.concatenate(parts)
    rows = tiles.reshape(-1, COLUMNS, 32, 32, 3).transpose(0, 2, 1, 3, 4)
    path = Path(__file__).with_name("cifar10-mini.webp")
    Image.fromarray(rows.reshape(-1, COLUMNS * 32, 3)).save(path, lossless=True, quality=100, method=6)
    assert (read_sheet(path).permute(0, 2, 3, 1).numpy() == tiles).all(), "the sheet is not lossless"
    print(f"{path}: {len(tiles)} images, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
