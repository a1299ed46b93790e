"""Color jitter, gray, blur and solarize on float images (P, 3, S, S) in [0, 1], one parameter per image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LUMA = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue in the luma (ITU-R BT.601)."""
UNCHANGED = (1.0, 1.0, 1.0, 0.0)
"""Amounts of brightness, contrast, saturation and hue that leave an image unchanged."""
BLUR_BLOCK = 32
"""Rows that are blurred at a time, so that zeros far from the diagonal are not multiplied."""


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def luma(images: Tensor) -> Tensor:
    """Return the luma (P, 1, S, S) of color images; the mean over channels of others."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    r, g, b = images.unbind(1)
    return (LUMA[0] * r + LUMA[1] * g + LUMA[2] * b)[:, None]


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply each image by its factor."""
    return (images * _per_image(factor)).clamp(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend each image with its mean luma: a factor of 0 is uniform gray, 1 leaves it unchanged."""
    mean = luma(images).mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(images), images, _per_image(factor)).clamp(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend each image with its luma: a factor of 0 is gray, 1 leaves it unchanged."""
    return torch.lerp(luma(images).expand_as(images), images, _per_image(factor)).clamp(0, 1)


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Shift the hue in HSV by `shift` of a full circle; images without three channels stay unchanged."""
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

    def channel(offset: float) -> Tensor:  # value − chroma · (tent function of the hue)
        k = (turned * 6 + offset).remainder(6)
        return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)

    return torch.stack([channel(5), channel(3), channel(1)], dim=1)


ADJUSTMENTS = (brightness, contrast, saturation, hue)
"""Adjustments of a color jitter, in the order of `UNCHANGED`."""


def jitter(images: Tensor, amounts: Tensor, order: Tensor) -> Tensor:
    """Apply the four adjustments to each image in an order of its own; amounts and order are (P, 4)."""
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
    """Replace the chosen images by their luma."""
    return torch.where(_per_image(chosen), luma(images), images)


def blur_matrices(sigma: Tensor, *, size: int, radius: int) -> Tensor:
    """Return matrices (P, S, S) that blur along one axis by a Gaussian, with reflected edges."""
    offsets = torch.arange(-radius, radius + 1, device=sigma.device)
    weights = torch.exp(-0.5 * (offsets / sigma[:, None]).square())
    weights = weights / weights.sum(1, keepdim=True)
    sources = (torch.arange(size, device=sigma.device)[:, None] + offsets).abs()  # (S, taps)
    sources = (size - 1) - ((size - 1) - sources).abs()
    taps = torch.nn.functional.one_hot(sources, size).to(weights.dtype)  # (S, taps, S)
    return torch.einsum("pt,its->pis", weights, taps)


def blur(images: Tensor, sigma: Tensor, *, largest: float) -> Tensor:
    """Apply a Gaussian blur to each image.

    Args:
        images: Images (P, C, S, S).
        sigma: Standard deviation in pixels (P,); 0 leaves an image unchanged.
        largest: Largest possible `sigma`; the kernel has a radius of 3 × `largest`.
    """
    size = images.shape[-1]
    rows = (sigma > 0).nonzero()[:, 0]
    if not len(rows):
        return images
    radius = min(math.ceil(3 * largest), size - 1)  # the limit of reflection
    band = blur_matrices(sigma[rows], size=size, radius=radius)[:, None]
    down = _banded(band, images[rows], radius)
    images = images.clone()
    images[rows] = _banded(band, down.mT, radius).mT
    return images


def _banded(band: Tensor, images: Tensor, radius: int) -> Tensor:
    """Return band @ images, block by block of rows, without the zeros far from the diagonal."""
    size = band.shape[-1]
    if size <= 2 * BLUR_BLOCK:
        return band @ images
    blurred = torch.empty_like(images)
    for start in range(0, size, BLUR_BLOCK):
        stop = min(start + BLUR_BLOCK, size)
        reach = slice(max(0, start - radius), min(size, stop + radius))
        blurred[..., start:stop, :] = band[..., start:stop, reach] @ images[..., reach, :]
    return blurred


def solarize(images: Tensor, chosen: Tensor) -> Tensor:
    """Invert the values of the chosen images that are at least 128 of 255."""
    return torch.where(_per_image(chosen) & (images >= 128 / 255), 1 - images, images)
