"""Encoders that others have trained, to be measured beside one's own."""

from __future__ import annotations

import frossl.compat  # noqa: F401  before timm, which imports torchvision

import timm  # isort: skip
from timm.data import resolve_model_data_config  # isort: skip

from frossl.errors import InputError
from frossl.networks.backbone import check_backbone
from frossl.networks.encoder import Encoder
from frossl.networks.weights import load_weights


def public_encoder(name: str, *, weights: str | None = None, channels: int = 3) -> Encoder:
    """An architecture of timm with the weights that timm fetches for it, or those of a local file, behind the
    preprocessing that timm says they were trained with."""
    check_backbone(name.partition(".")[0])
    try:
        model = timm.create_model(name, pretrained=weights is None, num_classes=0, in_chans=channels)
    except Exception as error:  # no network, no such weights: the hub has many errors
        raise InputError(
            f"timm cannot fetch weights for {name} ({type(error).__name__}); give a local file: {name}=FILE"
        ) from None
    if weights is not None:
        load_weights(model, weights)
    known = resolve_model_data_config(model)
    mean, std = ([known[key][i % len(known[key])] for i in range(channels)] for key in ("mean", "std"))
    return Encoder(model, size=known["input_size"][-1], mean=mean, std=std).eval()
