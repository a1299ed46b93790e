"""Export format `torchvision`: weights for the ResNet of the same name in torchvision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frossl.errors import InputError
from frossl.exporting.formats.record import ExportFormat, Files

if TYPE_CHECKING:
    from torch import nn

    from frossl.exporting.spec import EncoderSpec
    from frossl.networks import Encoder

FILE = "torchvision.safetensors"
RESNETS = (
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d",
)  # fmt: skip
"""Networks that torchvision builds as timm does, with the same keys."""
CLASSES = 1000
"""Number of rows of torchvision's classifier."""


def check_network(spec: EncoderSpec) -> None:
    """Raise an InputError unless torchvision has this network."""
    name = spec.network.backbone.partition(".")[0]
    if name not in RESNETS:
        raise InputError(f"torchvision has no {name} with timm's weights, only ResNets; export onnx or hf")
    if changes := spec.changes():
        raise InputError(
            f"torchvision's {name} is not this network ({changes}); export onnx or torch-export, "
            "or train with --set network.stem=native --width 1"
        )


def convert(encoder: Encoder, spec: EncoderSpec) -> Files:
    """Serialize the weights; the classifier is zero, so that a strict load succeeds."""
    import torch
    from safetensors.torch import save

    weights = {**encoder.backbone.state_dict()}
    weights |= {"fc.weight": torch.zeros(CLASSES, encoder.num_features)}
    weights |= {"fc.bias": torch.zeros(CLASSES)}
    return {FILE: save({key: value.contiguous().cpu() for key, value in weights.items()})}


def load(files: Files, spec: EncoderSpec) -> nn.Module:
    """Load the weights into torchvision's network, and remove its classifier."""
    from safetensors.torch import load
    from torch import nn

    import frossl.compat  # noqa: F401  before torchvision

    from torchvision import models  # isort: skip

    model: nn.Module = getattr(models, spec.network.backbone.partition(".")[0])()
    model.load_state_dict(load(files[FILE]))
    model.fc = nn.Identity()
    return model.eval()


def usage(spec: EncoderSpec) -> list[str]:
    """Return Python that loads the weights with torchvision."""
    name = spec.network.backbone.partition(".")[0]
    return [
        "from safetensors.torch import load_file",
        "from torch import nn",
        f"from torchvision.models import {name}",
        "",
        f"model = {name}()",
        f'model.load_state_dict(load_file("{FILE}"))',
        "model.fc = nn.Identity()  # the classifier in the file is zeros; put your own here",
        "model.eval()",
    ]


FORMAT = ExportFormat(
    name="torchvision",
    summary="torchvision's ResNet of the same name, with strict loading; "
    "the classifier is all zeros and must be replaced",
    files=(FILE,),
    convert=convert,
    load=load,
    takes="preprocessed",
    used_with="torchvision",
    usage=usage,
    check_network=check_network,
)
