"""A picture of what the networks will see: images, and their views beside them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

GAP = 2
PAPER = 255
SMALLEST = 64
"""Pixels along the side of a tile, below which it is magnified."""


def view_sheet(images: Tensor, views: Sequence[Tensor]) -> Tensor:
    """uint8 (height, width, 3): one row for each image, itself first, then its views, largest first.

    images: uint8 (N, C, H, W). views: float in [0, 1], groups (V_s, N, C, S, S). Tiles are magnified by whole
    numbers, so that pixels stay what they are, and views keep their size beside each other.
    """
    largest = max(group.shape[-1] for group in views)
    times = max(1, ceil(SMALLEST / largest))
    columns = [_fitted(images, largest)]
    columns += [(view * 255).round().byte() for group in views for view in group]
    tiles = [_tile(_in_color(column), times, largest * times) for column in columns]
    rows = [torch.cat([tile[n] for tile in tiles], dim=-1) for n in range(len(images))]
    return torch.cat(rows, dim=-2).permute(1, 2, 0).contiguous()


def _fitted(images: Tensor, size: int) -> Tensor:
    """Stored images at the size of the views."""
    scaled = F.interpolate(images.float(), (size, size), mode="bicubic", antialias=True)
    return scaled.round().clamp(0, 255).byte()


def _in_color(images: Tensor) -> Tensor:
    return images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)


def _tile(images: Tensor, times: int, side: int) -> Tensor:
    """Magnified, on paper, with a gap on the right and below."""
    images = images.repeat_interleave(times, -1).repeat_interleave(times, -2)
    rest = side - images.shape[-1] + GAP
    return F.pad(images, (0, rest, 0, rest), value=PAPER)
