"""Features of labelled images, computed once and kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.evaluation.split import Labelled

Rows = tuple[Tensor, Tensor]
"""Features (N, F) and labels (N,)."""


def extract(encoder: nn.Module, images: Labelled) -> Rows:
    """Pooled features in evaluation mode, on the encoder's device; the mode is put back."""
    device, training = next(encoder.parameters()).device, encoder.training
    encoder.eval()
    try:
        return _collect(images, lambda pixels: encoder(pixels.to(device)))
    finally:
        encoder.train(training)


def pixels(images: Labelled, *, largest: int = 32) -> Rows:
    """The images themselves as features, minus 0.5: a strong baseline. Larger ones are scaled down."""

    def flat(pixels: Tensor) -> Tensor:
        pixels = pixels.float() / 255 - 0.5
        if max(pixels.shape[-2:]) > largest:
            pixels = F.interpolate(pixels, (largest, largest), mode="bilinear", antialias=True)
        return pixels.flatten(1)

    return _collect(images, flat)


@torch.inference_mode()
def _collect(images: Labelled, of: Callable[[Tensor], Tensor], *, batch_size: int = 256) -> Rows:
    """An image that could not be read, and came as its replacement, is left out."""
    features, labels = [], []
    for ids, values in zip(images.ids.split(batch_size), images.labels.split(batch_size), strict=True):
        batch = images.source.read(ids)
        itself = batch.ids == ids
        features.append(of(batch.images[itself]).float().cpu())
        labels.append(values[itself])
    return torch.cat(features), torch.cat(labels)
