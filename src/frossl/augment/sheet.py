"""View sheet: a picture of images with their views beside them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

TILE_GAP = 2
"""Pixels between tiles."""
BACKGROUND = 255
"""Gray value between tiles."""
MIN_TILE_SIZE = 64
"""Size in pixels below which tiles are magnified."""


def view_sheet(images: Sequence[Tensor], views: Sequence[Tensor]) -> Tensor:
    """Draw one row for each image: the image itself, then its views, largest first.

    Tiles are magnified by a whole number, the same for all, so that pixels stay visible and relative sizes
    are kept.

    Args:
        images: The images, each uint8 (C, H, W).
        views: Groups of views of one size, float (V_s, N, C, S, S) in [0, 1].

    Returns:
        The picture, uint8 (height, width, 3).
    """
    largest = max(group.shape[-1] for group in views)
    factor = max(1, ceil(MIN_TILE_SIZE / largest))
    columns = [torch.stack([_fitted(image, largest) for image in images])]
    columns += [(view * 255).round().byte() for group in views for view in group]
    tiles = [_tile(_in_color(column), factor, largest * factor) for column in columns]
    rows = [torch.cat([tile[n] for tile in tiles], dim=-1) for n in range(len(images))]
    return torch.cat(rows, dim=-2).permute(1, 2, 0).contiguous()


def _fitted(image: Tensor, size: int) -> Tensor:
    """Resize a stored image so that its longer side is that of the views, and center it on the background."""
    height, width = (max(1, round(side * size / max(image.shape[-2:]))) for side in image.shape[-2:])
    scaled = F.interpolate(image[None].float(), (height, width), mode="bicubic", antialias=True)[0]
    fitted = torch.full((len(image), size, size), BACKGROUND, dtype=torch.uint8)
    top, left = (size - height) // 2, (size - width) // 2
    fitted[:, top : top + height, left : left + width] = scaled.round().clamp(0, 255).byte()
    return fitted


def _in_color(images: Tensor) -> Tensor:
    return images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)


def _tile(images: Tensor, factor: int, side: int) -> Tensor:
    """Magnify images, and pad them on the right and below to `side` plus a gap."""
    images = images.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
    rest = side - images.shape[-1] + TILE_GAP
    return F.pad(images, (0, rest, 0, rest), value=BACKGROUND)
