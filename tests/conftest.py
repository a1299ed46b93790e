"""Shared pieces of the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import frossl.compat  # noqa: F401  before any test imports torchvision

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def write_image(path: Path, *, width: int, height: int, seed: int = 0, mode: str = "RGB") -> None:
    """A smooth random picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(mode).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """JPEG and PNG files of different sizes and modes, flat and nested, without labels."""
    folder = tmp_path / "photos"
    for i in range(12):
        name = f"{i}.jpg" if i % 2 else f"trip/{i}.png"
        mode = "RGB" if i % 2 else ("L", "RGBA", "P")[i % 3]
        write_image(folder / name, width=40 + 7 * i, height=80 - 3 * i, seed=i, mode=mode)
    (folder / "notes.txt").write_text("not an image")
    return folder
