"""Encoder files: safetensors with the keys of timm, and a header with the specification. No pickles."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from frossl.config import Config
from frossl.errors import InputError, first_line
from frossl.exporting.card import model_card
from frossl.exporting.formats import ENCODER_FILES
from frossl.exporting.spec import EncoderSpec
from frossl.networks import Encoder
from frossl.runs import RunFolder
from frossl.runs.folder import write_atomically
from frossl.types import isolated_rng

HEADER_KEY = "frossl"
"""Only key of the metadata: safetensors writes several in random order, and bytes must be reproducible."""

MAX_HEADER_BYTES = 1 << 24
"""Bytes of a header that are read of a file that may be none of ours."""


def save_encoder(encoder: Encoder, config: Config, folder: RunFolder, *, step: int | None = None) -> None:
    """Write an encoder and its `preprocess.json` into a run folder.

    Args:
        encoder: The encoder.
        config: Configuration of the run, with all defaults filled in.
        folder: The run folder.
        step: Number of training steps that the encoder has had, if known.
    """
    spec = EncoderSpec.of(encoder, config, step=step)
    write_encoder(folder.encoder, encoder, spec)
    folder.write_json(folder.preprocess.name, spec.preprocess)


def write_card(folder: RunFolder) -> None:
    """Write the model card of a run, with its latest accuracies."""
    encoder, spec = read_encoder(folder.path)
    folder.write_text(folder.card.name, model_card(encoder, spec, folder))


def write_encoder(path: Path, encoder: Encoder, spec: EncoderSpec) -> None:
    """Write an encoder file; an existing one is replaced atomically."""
    write_atomically(path, lambda file: file.write(to_bytes(encoder, spec)))


def to_bytes(encoder: Encoder, spec: EncoderSpec) -> bytes:
    """Serialize an encoder: the content of its file."""
    weights = {name: tensor.contiguous().cpu() for name, tensor in encoder.backbone.state_dict().items()}
    return bytes(save(weights, metadata={HEADER_KEY: spec.to_json()}))


def load_encoder(path: str | Path) -> Encoder:
    """Load a trained encoder with its preprocessing, in evaluation mode. Nothing is unpickled.

    The encoder maps images (N, C, H, W) of any size, uint8 or float in [0, 1], to pooled features (N, F). Its
    methods `feature_map` and `patch_tokens` return features before pooling: (N, F, h, w) and (N, h·w, F).

    Args:
        path: A run folder, an exported folder, or a file `encoder.safetensors`.

    Returns:
        The encoder, on the CPU.

    Raises:
        InputError: If there is no encoder at `path`, or it cannot be read.
    """
    return read_encoder(path)[0]


def read_encoder(path: str | Path) -> tuple[Encoder, EncoderSpec]:
    """Load an encoder and its specification; see `load_encoder`."""
    file = _find(Path(path).expanduser())
    try:
        return from_bytes(file.read_bytes())
    except (InputError, OSError) as error:
        raise InputError(f"{file} cannot be read as an encoder: {error}") from None


def spec_of(path: str | Path) -> EncoderSpec | None:
    """Return the specification in the header of a file of weights; None if it is not an encoder of frossl."""
    try:
        with Path(path).expanduser().open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            metadata = json.loads(file.read(min(length, MAX_HEADER_BYTES)))["__metadata__"]
        return EncoderSpec.from_json(metadata[HEADER_KEY])
    except (OSError, ValueError, TypeError, KeyError, RecursionError, InputError):
        return None


def from_bytes(content: bytes) -> tuple[Encoder, EncoderSpec]:
    """Deserialize an encoder file.

    Files are read as bytes because the reader of safetensors takes only paths in UTF-8.

    Raises:
        InputError: If the content is not an encoder file.
    """
    try:
        weights = load(content)  # bounded by the file size: safetensors refuses a header that lists more
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        if HEADER_KEY not in metadata:
            raise InputError("it does not say what network it is of; give the file of a run")
        spec = EncoderSpec.from_json(metadata[HEADER_KEY])
        _check_weights(weights, spec)
        with isolated_rng():  # initial weights are drawn, and then replaced
            encoder = spec.build()
        encoder.backbone.load_state_dict(weights)
    except (SafetensorError, RuntimeError) as error:
        raise InputError(f"{first_line(error)}; give the file of a run") from None
    return encoder.eval(), spec


def _check_weights(weights: dict[str, Tensor], spec: EncoderSpec) -> None:
    """Raise if the weights are not of the network in the header, before memory for one is allocated."""
    states = spec.empty_state_dict(), weights
    expected, found = ({name: _shape_of(weight) for name, weight in state.items()} for state in states)
    if different := sorted(name for name, _ in expected.items() ^ found.items()):
        name, none = different[0], "none"
        raise InputError(
            f"its header names {spec.description()}, with {expected.get(name, none)} {name}, and it holds "
            f"{found.get(name, none)}; give the file of a run"
        )


def _shape_of(weight: Tensor) -> str:
    """Return kind and shape, regardless of the precision: `real (64, 3, 7, 7)`."""
    kind = "real" if weight.is_floating_point() else "complex" if weight.is_complex() else "whole"
    return f"{kind} {tuple(weight.shape)}"


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    for name in ENCODER_FILES:
        if (path / name).is_file():
            return path / name
    if (path / "config.toml").is_file():
        command = f"frossl resume {shlex.quote(str(path))}"
        raise InputError(f"{path} has no encoder yet; finish the run with `{command}`")
    if path.is_dir():
        raise InputError(f"{path} holds neither a run nor an encoder; give the folder passed to --out")
    raise InputError(f"there is no run at {path}; check the path")
