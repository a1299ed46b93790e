"""Networks: timm backbones with a stem for small images and a width, projectors, and encoders."""

from frossl.networks.backbone import (
    STAGES,
    build_backbone,
    check_backbone,
    default_stages,
    default_stem,
    timm_lines,
    timm_names,
    timm_options,
)
from frossl.networks.ema import ema_update, make_teacher
from frossl.networks.encoder import Encoder, features_of
from frossl.networks.layers import (
    freeze_layers,
    frozen_batch_norm,
    keep_frozen,
    layers_of,
    layerwise_lr_scales,
    synchronized,
)
from frossl.networks.projector import build_predictor, build_projector, output_of
from frossl.networks.prototypes import Prototypes
from frossl.networks.public import public_encoder
from frossl.networks.weights import load_weights, read_weights

__all__ = [
    "STAGES",
    "Encoder",
    "Prototypes",
    "build_backbone",
    "build_predictor",
    "build_projector",
    "check_backbone",
    "default_stages",
    "default_stem",
    "ema_update",
    "features_of",
    "freeze_layers",
    "frozen_batch_norm",
    "keep_frozen",
    "layers_of",
    "layerwise_lr_scales",
    "load_weights",
    "make_teacher",
    "output_of",
    "public_encoder",
    "read_weights",
    "synchronized",
    "timm_lines",
    "timm_names",
    "timm_options",
]
