"""Encoder: a backbone with the preprocessing it was trained with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.errors import InputError

FLOAT_TOLERANCE = 1e-3
"""Rounding error accepted beyond the range from 0 to 1 of float images."""


class Encoder(nn.Module):
    """Module from images (N, C, H, W), uint8 or float in [0, 1] and of any size, to features (N, F).

    Other input raises an InputError.

    Args:
        backbone: Network from standardized images to features.
        size: Image size in pixels that the backbone sees.
        mean: Mean of each channel, for values in [0, 1].
        std: Standard deviation of each channel.
    """

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
        """Length F of the features."""
        return features_of(self.backbone)

    def with_backbone(self, backbone: nn.Module) -> Encoder:
        """Return an encoder with another backbone and the same preprocessing."""
        mean, std = self.mean.flatten().tolist(), self.std.flatten().tolist()
        return Encoder(backbone, size=self.size, mean=mean, std=std)

    def ready_on(self, device: str | torch.device) -> Encoder:
        """Move the encoder to a device, in evaluation mode and channels-last memory format; return it.

        That format makes convolutions of many images 1.1 to 1.5 times as fast on a CPU (docs/decisions.md).
        It changes the rounding of features.
        """
        encoder: Encoder = self.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        return encoder

    def preprocess(self, images: Tensor) -> Tensor:
        """Scale the shorter side to `size`, crop the central square, and standardize."""
        check_images(images, channels=len(self.mean))
        images = _crop_long_side(images)
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
        """Return the feature map (N, F, h, w) of the backbone before its pooling and head.

        Some backbones, such as MobileNetV3, have another F after the head. For a transformer these are the
        patch tokens, without the class token.
        """
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
        """Return the feature map as a sequence (N, h·w, F), row by row."""
        return self.feature_map(images).flatten(2).transpose(1, 2)


def check_images(images: Tensor, *, channels: int) -> None:
    """Raise an InputError unless `images` is a batch (N, C, H, W), uint8 or float in [0, 1].

    Only the values of floats are checked, because that synchronizes with the device; frossl itself passes
    uint8. Values are not checked while a graph is traced.
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
    if not (low >= -FLOAT_TOLERANCE and high <= 1 + FLOAT_TOLERANCE):  # also true for NaN
        raise InputError(
            f"images are floats from {low:g} to {high:g}; give uint8 from 0 to 255, or floats from 0 to 1"
        )


MAX_ASPECT_RATIO = 8
"""Largest ratio of the sides of an image; the longer side is cropped to it before scaling.

Scaling all of a long image would take unbounded memory (737 MB for 1 × 60,000 pixels at size 32). No pixel of
the central square depends on what is cropped.
"""


def _crop_long_side(images: Tensor) -> Tensor:
    """Crop the longer side of long images, keeping their center."""
    H, W = images.shape[-2:]
    most = MAX_ASPECT_RATIO * min(H, W)
    top, left = (max(0, side - most) // 2 for side in (H, W))
    return images[..., top : H - top, left : W - left]


def features_of(backbone: nn.Module) -> int:
    """Return F, the length of the backbone's pooled output (timm's `head_hidden_size`)."""
    return int(getattr(backbone, "head_hidden_size", None) or backbone.num_features)  # type: ignore[arg-type]
