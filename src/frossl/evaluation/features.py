"""Features of labelled images, computed once and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.augment import ViewSpec, make_views, plan, standardize
from frossl.errors import NotFiniteError
from frossl.evaluation.split import Labelled
from frossl.networks import Encoder
from frossl.types import Batch, Clock

Rows = tuple[Tensor, Tensor]
"""Features (N, F) and labels (N,)."""


def extract(encoder: nn.Module, images: Labelled) -> Rows:
    """Pooled features in evaluation mode, on the encoder's device; the mode is put back."""
    return _evaluated(encoder, images, lambda batch: encoder(batch.images))


def bag_of_features(encoder: Encoder, images: Labelled, view: ViewSpec, *, crops: int) -> Rows:
    """The mean of the features of `crops` random crops of each image, cut and flipped as `view` says, without
    its colors: what a network that was trained on small patches is asked with (EMP-SSL). The crops are the
    same every time."""
    clock = Clock(step=0, total=1, epoch=0, seed=0)
    spec = replace(view, jitter=0.0, gray=0.0, blur=0.0, solarize=0.0)
    mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()

    def features(batch: Batch) -> Tensor:
        height, width = batch.images.shape[-2:]
        total = torch.zeros(())
        for crop in range(crops):  # one at a time, for memory
            chosen = plan(spec, batch.ids, torch.tensor([crop]), clock, height=height, width=width)
            (view,) = standardize(make_views(batch.images, spec, chosen), mean, std)
            total = total + encoder.backbone(view)
        return total / crops

    return _evaluated(encoder, images, features)


def _evaluated(encoder: nn.Module, images: Labelled, features: Callable[[Batch], Tensor]) -> Rows:
    device = next(encoder.parameters()).device
    modes = {module: module.training for module in encoder.modules()}  # frozen layers have their own
    encoder.eval()
    try:
        return _collect(images, lambda batch: features(Batch(batch.images.to(device), batch.ids.to(device))))
    finally:
        for module, training in modes.items():
            module.training = training


def pixels(images: Labelled, *, largest: int = 32) -> Rows:
    """The images themselves as features, minus 0.5: a strong baseline. Larger ones are scaled down."""

    def flat(batch: Batch) -> Tensor:
        pixels = batch.images.float() / 255 - 0.5
        if max(pixels.shape[-2:]) > largest:
            pixels = F.interpolate(pixels, (largest, largest), mode="bilinear", antialias=True)
        return pixels.flatten(1)

    return _collect(images, flat)


def colors(images: Labelled, *, bins: int = 16) -> Rows:
    """How often each brightness occurs in each channel (roots of histograms, so that a cosine compares them):
    what can be told without any shape."""

    def histograms(batch: Batch) -> Tensor:
        N, C, H, W = batch.images.shape
        bin_of = (batch.images.long() * bins // 256).view(N, C, H * W)
        counts = torch.zeros(N, C, bins).scatter_add_(2, bin_of, torch.ones(N, C, H * W))
        return (counts / (H * W)).sqrt().flatten(1)

    return _collect(images, histograms)


@torch.inference_mode()
def _collect(images: Labelled, of: Callable[[Batch], Tensor], *, batch_size: int = 64) -> Rows:
    """An image that could not be read, and came as its replacement, is left out.

    batch_size: larger ones leave the caches of a CPU, and took up to 1.7 times as long.
    """
    features, labels = [], []
    for ids, values in zip(images.ids.split(batch_size), images.labels.split(batch_size), strict=True):
        batch = images.source.read(ids)
        itself = batch.ids == ids
        features.append(of(Batch(batch.images[itself], ids[itself])).float().cpu())
        labels.append(values[itself])
    rows = torch.cat(features)
    if not rows.isfinite().all():
        raise NotFiniteError(
            f"features of {int((~rows.isfinite()).any(1).sum())} of {len(rows)} images are not finite; "
            "the encoder is broken: train again with a lower rate"
        )
    return rows, torch.cat(labels)
