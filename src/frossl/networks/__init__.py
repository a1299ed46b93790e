"""Networks: backbones by timm's names, with a stem for small images and a width; projectors; encoders."""

from frossl.networks.backbone import build_backbone, check_backbone, default_stem, timm_names
from frossl.networks.encoder import Encoder, features_of
from frossl.networks.projector import build_projector

__all__ = [
    "Encoder",
    "build_backbone",
    "build_projector",
    "check_backbone",
    "default_stem",
    "features_of",
    "timm_names",
]
