"""Crop, resize and flip as two small interpolation matrices per image: out = Y · image · Xᵀ.

Antialiased, so equal to the classic resize of the cropped image; a flip reverses the rows of X.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from frossl.augment.plan import Plan

LARGE = 80
"""Pixels from which on matrices are slower (docs/decisions.md)."""


def _kernel(x: Tensor, interpolation: str) -> Tensor:
    x = x.abs()
    if interpolation == "bilinear":
        return (1 - x).clamp_min(0)
    a = -0.5  # Keys' cubic as Pillow and torch's antialiased resize have it
    near = ((a + 2) * x - (a + 3)) * x.square() + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def interpolation_matrices(
    start: Tensor, length: Tensor, *, source: int, size: int, interpolation: str = "bicubic"
) -> Tensor:
    """float (P, size, source): row i holds the weights of output pixel i over the source pixels.

    `start` and `length` (P,) say which run of source pixels is stretched or shrunk to `size`.
    """
    scale = length.float()[:, None] / size
    wide = scale.clamp_min(1)  # shrinking: the kernel grows with it, which is the antialiasing
    center = (torch.arange(size, device=start.device) + 0.5) * scale  # (P, size), within the crop
    pixel = torch.arange(source, device=start.device) - start[:, None]  # (P, source), within the crop
    distance = (pixel[:, None, :] + 0.5 - center[:, :, None]) / wide[:, :, None]
    inside = (pixel >= 0) & (pixel < length[:, None])
    weights = _kernel(distance, interpolation) * inside[:, None, :]
    return weights / weights.sum(2, keepdim=True)


def crop_resize_flip(images: Tensor, plan: Plan, *, size: int, interpolation: str = "bicubic") -> Tensor:
    """uint8 images (N, C, H, W) -> views (P, C, size, size) in [0, 1], P a multiple of N.

    Large ones on a CPU, one by one, by torch's kernel for bytes: matrices are mostly zeros there.
    """
    if images.device.type == "cpu" and max(images.shape[-2:]) >= LARGE:
        return _one_by_one(images, plan, size=size, interpolation=interpolation)
    images = images.float() / 255
    N, C, H, W = images.shape
    top, left, height, width = plan.box.unbind(1)
    down = interpolation_matrices(top, height, source=H, size=size, interpolation=interpolation)
    across = interpolation_matrices(left, width, source=W, size=size, interpolation=interpolation)
    across = torch.where(plan.flip[:, None, None], across.flip(1), across)
    V = len(plan.box) // N
    rows = down.view(V, N, 1, size, H) @ images  # (V, N, C, size, W)
    views = rows @ across.mT.reshape(V, N, 1, W, size)
    return views.view(V * N, C, size, size).clamp(0, 1)  # cubic weights overshoot at edges


def _one_by_one(images: Tensor, plan: Plan, *, size: int, interpolation: str) -> Tensor:
    """The same to one and a half steps of 255, as pixels are rounded to bytes on the way."""
    N, C = images.shape[:2]
    views = torch.empty(len(plan.box), C, size, size, dtype=torch.uint8)
    for p, ((top, left, height, width), flip) in enumerate(
        zip(plan.box.tolist(), plan.flip.tolist(), strict=True)
    ):
        crop = images[p % N, None, :, top : top + height, left : left + width]
        view = F.interpolate(crop, (size, size), mode=interpolation, antialias=True)[0]
        views[p] = view.flip(-1) if flip else view
    return views.float().div_(255)
