"""Feature extraction from labelled images, and the baselines that need no encoder."""

from __future__ import annotations

from collections.abc import Callable

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
    """Compute pooled features of images.

    The encoder runs in evaluation mode on its own device; the mode of each of its modules is restored
    afterwards. Images that cannot be read are left out.

    Args:
        encoder: A module that maps images (N, C, H, W) to features (N, F).
        images: The images and their labels.

    Returns:
        Features (N, F), float32 on the CPU, and labels (N,).

    Raises:
        NotFiniteError: If a feature is NaN or infinite.
    """
    return _extract_with(encoder, images, lambda batch: encoder(batch.images))


def bag_of_features(encoder: Encoder, images: Labelled, view: ViewSpec, *, crops: int) -> Rows:
    """Compute the mean of the features of random crops of each image.

    This is the evaluation of networks trained on small patches (EMP-SSL).

    Args:
        encoder: The encoder, whose mean and standard deviation standardize the crops.
        images: The images and their labels.
        view: Scale, aspect ratio and flips of the crops; its other operations are not applied.
        crops: Number of crops per image. The crops are the same in every call.

    Returns:
        Features (N, F) and labels (N,), as from `extract`.
    """
    clock = Clock(step=0, total=1, epoch=0, seed=0)
    spec = ViewSpec(
        size=view.size,
        scale=view.scale,
        ratio=view.ratio,
        interpolation=view.interpolation,
        flip=view.flip,
    )
    mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()

    def features(batch: Batch) -> Tensor:
        height, width = batch.images.shape[-2:]
        total = torch.zeros(())
        for crop in range(crops):  # one at a time, to bound memory
            chosen = plan(spec, batch.ids, torch.tensor([crop]), clock, height=height, width=width)
            (view,) = standardize(make_views(batch, spec, chosen), mean, std)
            total = total + encoder.backbone(view)
        return total / crops

    return _extract_with(encoder, images, features)


def _extract_with(encoder: nn.Module, images: Labelled, features: Callable[[Batch], Tensor]) -> Rows:
    device = next(encoder.parameters()).device
    modes = {module: module.training for module in encoder.modules()}  # frozen layers may differ
    encoder.eval()
    try:
        return _collect(images, lambda batch: features(Batch(batch.images.to(device), batch.ids.to(device))))
    finally:
        for module, training in modes.items():
            module.training = training


def pixels(images: Labelled, *, largest: int = 32) -> Rows:
    """Return pixel values in [−0.5, 0.5] as features: a strong baseline.

    Args:
        images: The images and their labels.
        largest: Images with a longer side are resized to `largest` × `largest`.

    Returns:
        Features (N, C·H·W) and labels (N,).
    """

    def flat(batch: Batch) -> Tensor:
        pixels = batch.images.float() / 255 - 0.5
        if max(pixels.shape[-2:]) > largest:
            pixels = F.interpolate(pixels, (largest, largest), mode="bilinear", antialias=True)
        return pixels.flatten(1)

    return _collect(images, flat)


def colors(images: Labelled, *, bins: int = 16) -> Rows:
    """Return color histograms as features: a baseline that knows nothing of shape.

    Values are square roots of the frequencies, so that a cosine compares two histograms.

    Args:
        images: The images and their labels.
        bins: Number of brightness bins per channel.

    Returns:
        Features (N, C·bins) and labels (N,).
    """

    def histograms(batch: Batch) -> Tensor:
        N, C, H, W = batch.images.shape
        bin_of = (batch.images.long() * bins // 256).view(N, C, H * W)
        counts = torch.zeros(N, C, bins).scatter_add_(2, bin_of, torch.ones(N, C, H * W))
        return (counts / (H * W)).sqrt().flatten(1)

    return _collect(images, histograms)


@torch.inference_mode()
def _collect(images: Labelled, features_of: Callable[[Batch], Tensor], *, batch_size: int = 64) -> Rows:
    """Apply `features_of` batch by batch, without the images that a source replaced as unreadable.

    Larger batches do not fit the caches of a CPU, and took up to 1.7 times as long.
    """
    features, labels = [], []
    for ids, values in zip(images.ids.split(batch_size), images.labels.split(batch_size), strict=True):
        batch = images.source.read(ids)
        readable = batch.ids == ids
        features.append(features_of(Batch(batch.images[readable], ids[readable])).float().cpu())
        labels.append(values[readable])
    rows = torch.cat(features)
    if not rows.isfinite().all():
        raise NotFiniteError(
            f"features of {int((~rows.isfinite()).any(1).sum())} of {len(rows)} images are not finite; "
            "the encoder is broken: train again with a lower rate"
        )
    return rows, torch.cat(labels)
