"""Public pretrained encoders, to compare a run with."""

from __future__ import annotations

import frossl.compat  # noqa: F401  before timm, which imports torchvision

import timm  # isort: skip
from timm.data import resolve_model_data_config  # isort: skip

from frossl.errors import InputError
from frossl.networks.backbone import check_backbone
from frossl.networks.encoder import Encoder
from frossl.networks.weights import load_weights


def public_encoder(name: str, *, weights: str | None = None, channels: int = 3) -> Encoder:
    """Return a pretrained timm model with the preprocessing it was trained with.

    Args:
        name: Name of a timm architecture, optionally with a tag (`resnet50.a1_in1k`).
        weights: Local file of weights; None to let timm download them.
        channels: Number of input channels.

    Raises:
        InputError: If the weights cannot be downloaded or read, or do not fit.
    """
    check_backbone(name.partition(".")[0])
    try:
        model = timm.create_model(name, pretrained=weights is None, num_classes=0, in_chans=channels)
    except Exception as error:  # offline, or no such weights: the hub has no common error class
        raise InputError(
            f"timm cannot fetch weights for {name} ({type(error).__name__}); give a local file: {name}=FILE"
        ) from None
    if weights is not None:
        load_weights(model, weights)
    config = resolve_model_data_config(model)
    mean, std = ([config[key][i % len(config[key])] for i in range(channels)] for key in ("mean", "std"))
    return Encoder(model, size=config["input_size"][-1], mean=mean, std=std).eval()
