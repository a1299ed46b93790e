"""Encoder files: safetensors with timm's own keys, and how to prepare images for it."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from frossl.config import Config
from frossl.errors import InputError
from frossl.networks import Encoder, build_backbone
from frossl.runs import RunFolder
from frossl.runs.folder import write_atomically


def save_encoder(encoder: Encoder, folder: RunFolder) -> None:
    weights = {name: tensor.contiguous().cpu() for name, tensor in encoder.backbone.state_dict().items()}
    write_atomically(folder.encoder, lambda file: file.write(save(weights)))
    folder.write_json(
        folder.preprocess.name,
        {
            "size": encoder.size,
            "resize": "shorter side, bicubic, antialiased; then the central square",
            "mean": encoder.mean.flatten().tolist(),
            "std": encoder.std.flatten().tolist(),
        },
    )


def load_encoder(run: str | Path) -> Encoder:
    """The trained encoder of a run folder, in evaluation mode. Nothing is unpickled."""
    folder = RunFolder.open(run)
    if not folder.encoder.is_file():
        raise InputError(f"{run} has no encoder yet; finish the run with `frossl resume {run}`")
    config, prepare = Config.read(folder.config_file), folder.read_json(folder.preprocess.name)
    largest = max(spec.size for spec in config.views)
    backbone: nn.Module = build_backbone(config.network, size=largest, pretrained=False)
    try:
        backbone.load_state_dict(load(folder.encoder.read_bytes()))
    except (SafetensorError, RuntimeError) as error:
        raise InputError(f"{folder.encoder} does not fit its config.toml ({error}); train again") from None
    encoder = Encoder(backbone, size=prepare["size"], mean=prepare["mean"], std=prepare["std"])
    return encoder.eval()
