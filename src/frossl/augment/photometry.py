"""Color jitter, gray, blur and solarize on float images (P, 3, S, S) in [0, 1], one parameter per image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from frossl.augment.plan import UNCHANGED

LUMA = (0.2989, 0.587, 0.114)
BLOCK = 32


def _each(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def luma(images: Tensor) -> Tensor:
    """(P, 1, S, S); one channel is its own brightness, and more than three are averaged."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    r, g, b = images.unbind(1)
    return (LUMA[0] * r + LUMA[1] * g + LUMA[2] * b)[:, None]


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    return (images * _each(factor)).clamp(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    mean = luma(images).mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(images), images, _each(factor)).clamp(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(luma(images).expand_as(images), images, _each(factor)).clamp(0, 1)


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue by `shift` of a full circle, through HSV. Images without three channels have no hue."""
    if images.shape[1] != 3:
        return images
    r, g, b = images.unbind(1)
    value, low = images.amax(1), images.amin(1)
    chroma = value - low
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    sector = torch.where(
        value == r, (g - b) / safe, torch.where(value == g, (b - r) / safe + 2, (r - g) / safe + 4)
    )
    turned = sector / 6 + shift[:, None, None]

    def channel(offset: float) -> Tensor:  # value − chroma · (a tent over the circle of hues)
        k = (turned * 6 + offset).remainder(6)
        return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)

    return torch.stack([channel(5), channel(3), channel(1)], dim=1)


ADJUSTMENTS = (brightness, contrast, saturation, hue)


def jitter(images: Tensor, amounts: Tensor, order: Tensor) -> Tensor:
    """Apply the four adjustments to each image in its own order; amounts and order are (P, 4)."""
    images = images.clone()
    for place in range(len(ADJUSTMENTS)):
        for which, adjust in enumerate(ADJUSTMENTS):
            chosen = (order[:, place] == which) & (amounts[:, which] != UNCHANGED[which])
            rows = chosen.nonzero()[:, 0]
            if len(rows) == len(images):
                images = adjust(images, amounts[:, which])
            elif len(rows):
                images[rows] = adjust(images[rows], amounts[rows, which])
    return images


def gray(images: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(_each(chosen), luma(images), images)


def blur_matrices(sigma: Tensor, *, size: int, radius: int) -> Tensor:
    """float (P, S, S): a Gaussian along one axis, edges reflected, as a matrix."""
    offsets = torch.arange(-radius, radius + 1, device=sigma.device)
    weights = torch.exp(-0.5 * (offsets / sigma[:, None]).square())
    weights = weights / weights.sum(1, keepdim=True)
    reached = (torch.arange(size, device=sigma.device)[:, None] + offsets).abs()  # (S, taps)
    reached = (size - 1) - ((size - 1) - reached).abs()
    taps = torch.nn.functional.one_hot(reached, size).to(weights.dtype)  # (S, taps, S)
    return torch.einsum("pt,its->pis", weights, taps)


def blur(images: Tensor, sigma: Tensor, *, largest: float) -> Tensor:
    """Gaussian blur of deviation `sigma` (P,) pixels; 0 leaves an image alone. Taps reach 3 × `largest`."""
    size = images.shape[-1]
    rows = (sigma > 0).nonzero()[:, 0]
    if not len(rows):
        return images
    radius = min(math.ceil(3 * largest), size - 1)  # reflection cannot reach further
    band = blur_matrices(sigma[rows], size=size, radius=radius)[:, None]
    down = _banded(band, images[rows], radius)
    images = images.clone()
    images[rows] = _banded(band, down.mT, radius).mT
    return images


def _banded(band: Tensor, images: Tensor, radius: int) -> Tensor:
    """band @ images, without the zeros far from the diagonal: block after block of rows."""
    size = band.shape[-1]
    if size <= 2 * BLOCK:
        return band @ images
    blurred = torch.empty_like(images)
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        reach = slice(max(0, start - radius), min(size, stop + radius))
        blurred[..., start:stop, :] = band[..., start:stop, reach] @ images[..., reach, :]
    return blurred


def solarize(images: Tensor, chosen: Tensor) -> Tensor:
    """Invert what is at least 128 of 255."""
    return torch.where(_each(chosen) & (images >= 128 / 255), 1 - images, images)
