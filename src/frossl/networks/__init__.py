"""Networks: backbones by timm's names, with a stem for small images and a width; projectors; encoders."""

from frossl.networks.backbone import build_backbone, check_backbone, default_stem, timm_names
from frossl.networks.ema import follow, teacher_of
from frossl.networks.encoder import Encoder, features_of
from frossl.networks.projector import build_projector, output_of
from frossl.networks.prototypes import Prototypes

__all__ = [
    "Encoder",
    "Prototypes",
    "build_backbone",
    "build_projector",
    "check_backbone",
    "default_stem",
    "features_of",
    "follow",
    "output_of",
    "teacher_of",
    "timm_names",
]
