"""Networks: backbones by timm's names, with a stem for small images and a width; projectors; encoders."""

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
from frossl.networks.ema import follow, teacher_of
from frossl.networks.encoder import Encoder, features_of
from frossl.networks.layers import (
    freeze_layers,
    keep_frozen,
    layers_of,
    rates_by_depth,
    still_statistics,
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
    "features_of",
    "follow",
    "freeze_layers",
    "keep_frozen",
    "layers_of",
    "load_weights",
    "output_of",
    "public_encoder",
    "rates_by_depth",
    "read_weights",
    "still_statistics",
    "synchronized",
    "teacher_of",
    "timm_lines",
    "timm_names",
    "timm_options",
]
