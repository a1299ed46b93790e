"""Crop, resize and flip by two small interpolation matrices per image: out = Y · image · Xᵀ.

The result equals the antialiased resize of the cropped image; a flip reverses the rows of X.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from frossl.augment.plan import Plan

LARGE_IMAGE_SIZE = 80
"""Shorter side of images, in pixels, from which matrices are slower than a resize by image
(docs/decisions.md)."""


def _kernel(x: Tensor, interpolation: str) -> Tensor:
    x = x.abs()
    if interpolation == "bilinear":
        return (1 - x).clamp_min(0)
    a = -0.5  # Keys' cubic, as in Pillow and in torch's antialiased resize
    near = ((a + 2) * x - (a + 3)) * x.square() + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def interpolation_matrices(
    start: Tensor, length: Tensor, *, source: int, size: int, interpolation: str = "bicubic"
) -> Tensor:
    """Return interpolation matrices (P, size, source): row i has the weights of output pixel i.

    Args:
        start: First source pixel of each crop (P,).
        length: Number of source pixels of each crop (P,).
        source: Number of source pixels.
        size: Number of output pixels.
        interpolation: `bicubic` or `bilinear`.
    """
    scale = length.float()[:, None] / size
    wide = scale.clamp_min(1)  # antialiasing: the kernel widens when the image shrinks
    center = (torch.arange(size, device=start.device) + 0.5) * scale  # (P, size), within the crop
    pixel = torch.arange(source, device=start.device) - start[:, None]  # (P, source), within the crop
    distance = (pixel[:, None, :] + 0.5 - center[:, :, None]) / wide[:, :, None]
    inside = (pixel >= 0) & (pixel < length[:, None])
    weights = _kernel(distance, interpolation) * inside[:, None, :]
    return weights / weights.sum(2, keepdim=True)


def crop_resize_flip(
    images: Tensor, plan: Plan, *, size: int, interpolation: str = "bicubic", sizes: Tensor | None = None
) -> Tensor:
    """Crop, resize and flip images with the parameters of a plan.

    Large images on a CPU are resized one by one by torch's kernel for bytes, because the matrices are mostly
    zeros.

    Args:
        images: uint8 (N, C, H, W).
        plan: Parameters of P views; P is a multiple of N.
        size: Size of the views in pixels.
        interpolation: `bicubic` or `bilinear`.
        sizes: Heights and widths of the images without padding, int64 (N, 2); None if none is padded.

    Returns:
        Views (P, C, size, size), float in [0, 1].
    """
    shortest = min(images.shape[-2:]) if sizes is None else sizes.min()
    if images.device.type == "cpu" and shortest >= LARGE_IMAGE_SIZE:
        return _one_by_one(images, plan, size=size, interpolation=interpolation)
    (flip,) = plan.parameters["flip"]
    images = images.float() / 255
    N, C, H, W = images.shape
    top, left, height, width = plan.box.unbind(1)
    down = interpolation_matrices(top, height, source=H, size=size, interpolation=interpolation)
    across = interpolation_matrices(left, width, source=W, size=size, interpolation=interpolation)
    across = torch.where(flip[:, None, None], across.flip(1), across)
    V = len(plan.box) // N
    rows = down.view(V, N, 1, size, H) @ images  # (V, N, C, size, W)
    views = rows @ across.mT.reshape(V, N, 1, W, size)
    return views.view(V * N, C, size, size).clamp(0, 1)  # cubic weights overshoot at edges


def _one_by_one(images: Tensor, plan: Plan, *, size: int, interpolation: str) -> Tensor:
    """Resize image by image; equal to the matrices up to 1.5 / 255, as pixels are rounded to bytes."""
    N, C = images.shape[:2]
    views = torch.empty(len(plan.box), C, size, size, dtype=torch.uint8)
    (flips,) = plan.parameters["flip"]
    for p, ((top, left, height, width), flip) in enumerate(
        zip(plan.box.tolist(), flips.tolist(), strict=True)
    ):
        crop = images[p % N, None, :, top : top + height, left : left + width]
        view = F.interpolate(crop, (size, size), mode=interpolation, antialias=True)[0]
        views[p] = view.flip(-1) if flip else view
    return views.float().div_(255)
