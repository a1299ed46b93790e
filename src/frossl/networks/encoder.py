"""A backbone together with the preprocessing it was trained with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.errors import InputError

SLACK = 1e-3
"""What rounding may add to floats from 0 to 1."""


class Encoder(nn.Module):
    """Images (N, C, H, W), uint8 or float in [0, 1], any size -> features (N, F). Others are refused."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, backbone: nn.Module, *, size: int, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.backbone, self.size = backbone, size
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    @property
    def num_features(self) -> int:
        return features_of(self.backbone)

    def with_backbone(self, backbone: nn.Module) -> Encoder:
        """Another backbone behind the same preprocessing."""
        mean, std = self.mean.flatten().tolist(), self.std.flatten().tolist()
        return Encoder(backbone, size=self.size, mean=mean, std=std)

    def ready_on(self, device: str | torch.device) -> Encoder:
        """In evaluation mode, in the memory format in which convolutions take many images fastest: on a CPU
        1.1 to 1.5 times (docs/decisions.md). Features are then rounded otherwise."""
        encoder: Encoder = self.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        return encoder

    def preprocess(self, images: Tensor) -> Tensor:
        """Scale the shorter side to `size`, cut to the central square, standardize."""
        check_images(images, channels=len(self.mean))
        images = _middle(images)
        images = images.float() / 255 if images.dtype == torch.uint8 else images
        H, W = images.shape[-2:]
        if min(H, W) != self.size:
            shape = [round(side * self.size / min(H, W)) for side in (H, W)]
            images = F.interpolate(images, shape, mode="bicubic", antialias=True).clamp(0, 1)
            H, W = images.shape[-2:]
        top, left = (H - self.size) // 2, (W - self.size) // 2
        images = images[..., top : top + self.size, left : left + self.size]
        return (images - self.mean) / self.std

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.backbone(self.preprocess(images))
        return features

    def feature_map(self, images: Tensor) -> Tensor:
        """Features of places, (N, F, h, w): what the backbone has before its pooling and head (behind which
        some, such as MobileNetV3, have another F). Of a transformer the tokens of its patches, without the
        class token."""
        prepared, backbone = self.preprocess(images), self.backbone
        maps: Tensor = backbone.forward_features(prepared)  # type: ignore[operator]
        if maps.ndim == 3:
            tokens = maps[:, getattr(backbone, "num_prefix_tokens", 0) :]
            height, width = backbone.patch_embed.dynamic_feat_size(prepared.shape[-2:])  # type: ignore[union-attr, operator]
            maps = tokens.transpose(1, 2).unflatten(2, (height, width))
        elif getattr(backbone, "output_fmt", "NCHW") == "NHWC":
            maps = maps.permute(0, 3, 1, 2)
        return maps

    def patch_tokens(self, images: Tensor) -> Tensor:
        """The feature map as a sequence, (N, h·w, F), row by row."""
        return self.feature_map(images).flatten(2).transpose(1, 2)


def check_images(images: Tensor, *, channels: int) -> None:
    """Refuse what is no batch of images, uint8 or float in [0, 1].

    Only the values of floats are looked at, which waits for the device: frossl itself hands in uint8. A graph
    that is being traced has no values.
    """
    if not isinstance(images, Tensor):
        raise InputError(f"images are a {type(images).__name__}; give a tensor (torch.as_tensor)")
    if images.ndim != 4 or images.shape[1] != channels or 0 in images.shape[2:]:
        raise InputError(f"images are of shape {tuple(images.shape)}; give (N, {channels}, H, W)")
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise InputError(f"images are {images.dtype}; give uint8 from 0 to 255, or floats from 0 to 1")
    tracing = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
    if tracing or not images.numel():
        return
    low, high = (end.item() for end in images.detach().aminmax())
    if not (low >= -SLACK and high <= 1 + SLACK):  # NaN is neither
        raise InputError(
            f"images are floats from {low:g} to {high:g}; give uint8 from 0 to 255, or floats from 0 to 1"
        )


LONGEST = 8
"""Shorter sides: what is longer is cut first, as all of it scaled would take memory without end (737 MB for
1 × 60,000 pixels at 32). No pixel of the square reads that far."""


def _middle(images: Tensor) -> Tensor:
    """The central part of long images, with the same middle."""
    H, W = images.shape[-2:]
    most = LONGEST * min(H, W)
    top, left = (max(0, side - most) // 2 for side in (H, W))
    return images[..., top : H - top, left : W - left]


def features_of(backbone: nn.Module) -> int:
    """F: the length of the backbone's pooled output (timm calls it the head's hidden size)."""
    return int(getattr(backbone, "head_hidden_size", None) or backbone.num_features)  # type: ignore[arg-type]
