"""Backbones by timm's names, as modules (N, C, S, S) -> pooled features (N, F).

Small images lose everything in a stem made for 224 pixels, so each family has two more: `small` (stride 1)
and `fast` (stride 2), without pooling. What is changed is changed by timm's own arguments, or in one line
after it, so that plain timm can rebuild the network.
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

SMALL_IMAGE, SMALL_FOR_RESNET = 64, 40
"""Up to this many pixels, a stem made for small images is the default; for a ResNet, at 48 its own learned
more per minute (docs/decisions.md)."""

SMALL_FOR_STAGES = 24
"""Up to this many, three stages of a ResNet learn more per minute than four (docs/decisions.md)."""

WITH_STEMS = (ResNet, ConvNeXt, VisionTransformer, EfficientNet, MobileNetV3)
WITH_WIDTH = (ResNet, ConvNeXt, VisionTransformer)
STAGES = ("layer1", "layer2", "layer3", "layer4")
"""Of a ResNet."""


def timm_names() -> list[str]:
    """Every architecture that timm can build."""
    return list(timm.list_models())


def check_backbone(name: str) -> None:
    if not timm.is_model(name):
        raise unknown("backbone", name, timm_names())


def default_stem(network: Network, *, size: int) -> Stem:
    """`fast` for small images where the family has it: it learns most per minute (docs/decisions.md).

    `native` for given weights, as that is the stem they have.
    """
    native = _native(network.backbone)
    small = size <= (SMALL_FOR_RESNET if isinstance(native, ResNet) else SMALL_IMAGE)
    return "fast" if small and network.weights is None and isinstance(native, WITH_STEMS) else "native"


def default_stages(network: Network, *, size: int) -> int | None:
    """Of a ResNet with a stem for small images, those that still have places to tell apart; all, if None.

    The last one of the four has three quarters of the weights, and at 20 pixels two places a side.
    """
    resnet = isinstance(_native(network.backbone), ResNet)
    return 3 if resnet and network.stem == "fast" and size <= SMALL_FOR_STAGES else None


def build_backbone(network: Network, *, size: int, pretrained: bool = True) -> nn.Module:
    """The network for images of `size` pixels (others work too), with `num_features` outputs.

    pretrained: start from `network.weights`, if there are any.
    """
    model = _architecture(network, size)
    if pretrained and network.weights is not None:
        load_weights(model, network.weights)
    return model


def timm_options(network: Network, *, size: int) -> dict[str, Any]:
    """What timm is called with. A frossl stem and cut come after it: see `timm_lines`."""
    native, stem = _native(network.backbone), _stem(network, size)
    if stem != "native" and not isinstance(native, WITH_STEMS):
        raise ConfigError("network.stem", stem, f"{network.backbone} has only the stem 'native'")
    if network.width != 1 and not isinstance(native, WITH_WIDTH):
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
    """Python that rebuilds the network by plain timm, for those who do not have frossl."""
    options = timm_options(network, size=size)
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    lines = [f"model = timm.create_model({network.backbone!r}{given})"]
    with torch.device("meta"):
        plain, ours = _create(network, options), dict(_architecture(network, size).named_children())
    for name, module in ours.items():
        if repr(module) == repr(getattr(plain, name, None)):
            continue
        if type(module).__module__.startswith("torch.nn"):
            lines.append(f"model.{name} = nn.{module!r}")
        else:  # timm's own convolution, of which a frossl stem changes the stride
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
        options |= {"stem_type": "deep", "stem_width": widths[0] // 2}  # timm's only way to a narrow stem
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
    """The architecture as timm has it, without memory for its weights."""
    check_backbone(name)
    with torch.device("meta"):
        model: nn.Module = timm.create_model(name, num_classes=0)
    return model
