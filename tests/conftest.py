"""Fixtures of all tests; helpers are in tests/support."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import frossl.compat  # noqa: F401  before any test imports torchvision
from tests.support.images import write_image


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


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
