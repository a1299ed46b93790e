"""Export format `hf`: a folder that timm loads from disk or from the Hugging Face Hub."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from frossl.errors import InputError
from frossl.exporting.formats.record import ExportFormat, Files

if TYPE_CHECKING:
    from torch import nn

    from frossl.exporting.spec import EncoderSpec
    from frossl.networks import Encoder

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
FRONT_MATTER = (
    "---\nlibrary_name: timm\npipeline_tag: image-feature-extraction\ntags:\n- timm\n- frossl\n---\n"
)
"""YAML front matter of model cards on the Hugging Face Hub."""


def check_network(spec: EncoderSpec) -> None:
    """Raise an InputError unless the arguments of timm are enough to build this network."""
    if changes := spec.changes(beyond_timm=True):
        raise InputError(
            f"timm builds a network from a folder by its own arguments, and this one needs more ({changes}); "
            "export safetensors, whose model card has the lines that rebuild it"
        )


def convert(encoder: Encoder, spec: EncoderSpec) -> Files:
    """Serialize the encoder, and describe it as timm does."""
    from frossl.exporting.encoder import to_bytes

    default: dict[str, Any] = encoder.backbone.pretrained_cfg  # type: ignore[assignment]
    pretrained = {
        "input_size": [len(spec.mean), spec.size, spec.size],
        "fixed_input_size": False,
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "mean": list(spec.mean),
        "std": list(spec.std),
        "num_classes": 0,
        "first_conv": default.get("first_conv"),
        "classifier": default.get("classifier"),
    }
    config = {
        "architecture": spec.network.backbone.partition(".")[0],
        "num_classes": 0,
        "num_features": encoder.num_features,
        "model_args": spec.timm_options(),
        "pretrained_cfg": pretrained,
    }
    return {
        CONFIG_FILE: (json.dumps(config, indent=2) + "\n").encode(),
        WEIGHTS_FILE: to_bytes(encoder, spec),
    }


def load(files: Files, spec: EncoderSpec) -> nn.Module:
    """Load the files with timm, which reads a folder."""
    import timm

    with TemporaryDirectory(prefix="frossl-") as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        model: nn.Module = timm.create_model(f"local-dir:{folder}", pretrained=True)
    return model.eval()


def usage(spec: EncoderSpec) -> list[str]:
    """Return Python that loads the folder with timm."""
    return ["import timm", "", 'model = timm.create_model("local-dir:.", pretrained=True).eval()']


FORMAT = ExportFormat(
    name="hf",
    summary='timm, `create_model("local-dir:FOLDER", pretrained=True)`, '
    "or from the Hugging Face Hub after an upload",
    files=(CONFIG_FILE, WEIGHTS_FILE),
    convert=convert,
    load=load,
    takes="preprocessed",
    used_with="timm alone, from this folder (or another one after `local-dir:`)",
    usage=usage,
    check_network=check_network,
    encoder_file=WEIGHTS_FILE,
    card="README.md",
    front_matter=FRONT_MATTER,
)
