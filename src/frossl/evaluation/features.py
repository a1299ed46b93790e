"""Features of stored images, computed once and kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.data import Source


@torch.inference_mode()
def _collect(source: Source, ids: Tensor, of: Callable[[Tensor], Tensor], *, batch_size: int = 256) -> Tensor:
    return torch.cat([of(source.read(some).images).float().cpu() for some in ids.split(batch_size)])


def extract(encoder: nn.Module, source: Source, ids: Tensor) -> Tensor:
    """(N, F) in evaluation mode, on the encoder's device; the mode is put back."""
    device, training = next(encoder.parameters()).device, encoder.training
    encoder.eval()
    try:
        return _collect(source, ids, lambda images: encoder(images.to(device)))
    finally:
        encoder.train(training)


def pixels(source: Source, ids: Tensor, *, largest: int = 32) -> Tensor:
    """The images themselves as features, minus 0.5: a strong baseline. Larger ones are scaled down."""

    def flat(images: Tensor) -> Tensor:
        images = images.float() / 255 - 0.5
        if max(images.shape[-2:]) > largest:
            images = F.interpolate(images, (largest, largest), mode="bilinear", antialias=True)
        return images.flatten(1)

    return _collect(source, ids, flat)
