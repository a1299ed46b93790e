"""Backbones by their timm names, as modules (N, C, S, S) -> pooled features (N, F).

A stem made for 224 pixels downsamples small images too much, so each family has two more: `small` (stride 1)
and `fast` (stride 2), without pooling. All changes are arguments of timm, or one line after its call, so that
plain timm can rebuild the network.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

import frossl.compat  # noqa: F401  before timm, which imports torchvision

import timm  # isort: skip
from timm.models.convnext import ConvNeXt  # isort: skip
from timm.models.efficientnet import EfficientNet  # isort: skip
from timm.models.mobilenetv3 import MobileNetV3  # isort: skip
from timm.models.resnet import ResNet  # isort: skip
from timm.models.vision_transformer import VisionTransformer  # isort: skip

from frossl.config import Network
from frossl.errors import ConfigError, unknown
from frossl.networks.weights import load_weights

Stem = Literal["native", "small", "fast"]

SMALL_IMAGE_SIZE = 64
"""Largest image size, in pixels, for which a stem made for small images is the default."""

SMALL_IMAGE_SIZE_RESNET = 40
"""`SMALL_IMAGE_SIZE` of ResNets: at 48 pixels the native stem learned more per minute (docs/decisions.md)."""

THREE_STAGE_SIZE = 24
"""Largest image size at which three ResNet stages learn more per minute than four (docs/decisions.md)."""

FAMILIES_WITH_STEMS = (ResNet, ConvNeXt, VisionTransformer, EfficientNet, MobileNetV3)
"""Families for which the stems `small` and `fast` are defined."""

FAMILIES_WITH_WIDTH = (ResNet, ConvNeXt, VisionTransformer)
"""Families whose channels can be scaled by `network.width`."""

STAGES = ("layer1", "layer2", "layer3", "layer4")
"""Names of the stages of a ResNet."""


def timm_names() -> list[str]:
    """Return the name of every architecture that timm can build."""
    return list(timm.list_models())


def check_backbone(name: str) -> None:
    """Raise an error with suggestions if timm has no architecture of this name."""
    if not timm.is_model(name):
        raise unknown("backbone", name, timm_names())


def default_stem(network: Network, *, size: int) -> Stem:
    """Return the default stem of a network for images of `size` pixels.

    It is `fast` for small images if the family has it, as it learns most per minute (docs/decisions.md), and
    `native` if weights are given, as they were trained with that stem.
    """
    native = _native(network.backbone)
    small = size <= (SMALL_IMAGE_SIZE_RESNET if isinstance(native, ResNet) else SMALL_IMAGE_SIZE)
    return (
        "fast" if small and network.weights is None and isinstance(native, FAMILIES_WITH_STEMS) else "native"
    )


def default_stages(network: Network, *, size: int) -> int | None:
    """Return the default number of stages of a network for images of `size` pixels; None for all.

    A ResNet with the stem `fast` has three for the smallest images: the last of the four stages has three
    quarters of the weights, and at 20 pixels its feature map is 2 × 2.
    """
    resnet = isinstance(_native(network.backbone), ResNet)
    return 3 if resnet and network.stem == "fast" and size <= THREE_STAGE_SIZE else None


def build_backbone(network: Network, *, size: int, pretrained: bool = True) -> nn.Module:
    """Build a backbone with pooled features as output.

    Args:
        network: Architecture, stem, width, stages, channels and weights.
        size: Image size in pixels that the network is built for; it accepts other sizes too.
        pretrained: Whether to load `network.weights`, if there are any.

    Returns:
        The backbone; `features_of` gives the length of its output.

    Raises:
        ConfigError: If the architecture does not support the stem, width, stages or drop path.
        InputError: If the weights cannot be read or do not fit.
    """
    model = _architecture(network, size)
    if pretrained and network.weights is not None:
        load_weights(model, network.weights)
    return model


def timm_options(network: Network, *, size: int) -> dict[str, Any]:
    """Return the keyword arguments of `timm.create_model` for a network.

    A frossl stem and the removal of stages come after that call: see `timm_lines`.

    Args:
        network: Architecture, stem, width, stages and channels.
        size: Image size in pixels.

    Raises:
        ConfigError: If the architecture does not support the stem, width or stages.
    """
    native, stem = _native(network.backbone), _stem(network, size)
    if stem != "native" and not isinstance(native, FAMILIES_WITH_STEMS):
        raise ConfigError("network.stem", stem, f"{network.backbone} has only the stem 'native'")
    if network.width != 1 and not isinstance(native, FAMILIES_WITH_WIDTH):
        raise ConfigError("network.width", network.width, f"{network.backbone} comes in width 1 only")
    if network.stages is not None and not isinstance(native, ResNet):
        raise ConfigError("network.stages", network.stages, "only ResNets can be cut; leave it out")

    options: dict[str, Any] = {"num_classes": 0, "in_chans": network.channels or 3}
    if network.drop_path:
        options["drop_path_rate"] = network.drop_path
    if isinstance(native, ResNet):
        options |= _resnet_options(network, native, stem)
    if isinstance(native, ConvNeXt):
        options["dims"] = tuple(_scaled(info["num_chs"], network.width) for info in native.feature_info)
        options["patch_size"] = {"native": 4, "fast": 2, "small": 1}[stem]
    if isinstance(native, VisionTransformer):
        heads = max(1, round(native.blocks[0].attn.num_heads * network.width))
        per_head = native.embed_dim // native.blocks[0].attn.num_heads
        options |= {"embed_dim": heads * per_head, "num_heads": heads}
        options |= {"img_size": size, "dynamic_img_size": True, "dynamic_img_pad": True}
        if stem != "native":
            options["patch_size"] = {"fast": 4, "small": 2}[stem]
    return options


def timm_lines(network: Network, *, size: int) -> list[str]:
    """Return Python lines that rebuild the network with plain timm, without frossl."""
    options = timm_options(network, size=size)
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    lines = [f"model = timm.create_model({network.backbone!r}{given})"]
    with torch.device("meta"):
        plain, children = _create(network, options), dict(_architecture(network, size).named_children())
    for name, module in children.items():
        if repr(module) == repr(getattr(plain, name, None)):
            continue
        if type(module).__module__.startswith("torch.nn"):
            lines.append(f"model.{name} = nn.{module!r}")
        else:  # a convolution class of timm, whose stride is all that a frossl stem changes
            lines.append(f"model.{name}.stride = {module.stride}")
    return lines


def _architecture(network: Network, size: int) -> nn.Module:
    options, stem = timm_options(network, size=size), _stem(network, size)
    model = _create(network, options)
    if isinstance(model, ResNet):
        if stem != "native":
            stride, width = {"small": 1, "fast": 2}[stem], 2 * options["stem_width"]
            model.conv1 = nn.Conv2d(options["in_chans"], width, 3, stride=stride, padding=1, bias=False)
            nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
            model.maxpool = nn.Identity()
        for missing in range(len(options.get("layers", STAGES)), len(STAGES)):
            setattr(model, STAGES[missing], nn.Identity())
    elif stem == "small" and isinstance(model, (EfficientNet, MobileNetV3)):
        model.conv_stem.stride = (1, 1)
    return model


def _stem(network: Network, size: int) -> Stem:
    return network.stem or default_stem(network, size=size)


def _resnet_options(network: Network, native: ResNet, stem: Stem) -> dict[str, Any]:
    layers = tuple(len(getattr(native, stage)) for stage in STAGES)
    stages = network.stages or len(layers)
    if not 1 <= stages <= len(layers):
        raise ConfigError("network.stages", network.stages, f"{network.backbone} has {len(layers)}")
    widths = tuple(_scaled(64 * 2**i, network.width) for i in range(stages))
    options: dict[str, Any] = {}
    if network.width != 1 or stages < len(layers):
        options |= {"layers": layers[:stages], "channels": widths}
    if stem != "native":
        options |= {
            "stem_type": "deep",
            "stem_width": widths[0] // 2,
        }  # the only argument of timm for a narrow stem
    return options


def _create(network: Network, options: dict[str, Any]) -> nn.Module:
    try:
        model: nn.Module = timm.create_model(network.backbone, **options)
    except TypeError as error:
        if "drop_path" not in str(error):
            raise
        hint = f"{network.backbone} has no blocks to skip; leave it out"
        raise ConfigError("network.drop_path", network.drop_path, hint) from None
    return model


def _scaled(channels: int, width: float) -> int:
    return max(8, round(channels * width / 8) * 8)


def _native(name: str) -> nn.Module:
    """Build the unchanged timm architecture on the meta device, without memory for its weights."""
    check_backbone(name)
    with torch.device("meta"):
        model: nn.Module = timm.create_model(name, num_classes=0)
    return model
