"""Encoder files: safetensors with timm's own keys, and a header that says what they are. No pickles."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from frossl.artifacts.card import model_card
from frossl.artifacts.design import Design
from frossl.config import Config
from frossl.errors import InputError, first_line
from frossl.networks import Encoder
from frossl.runs import RunFolder
from frossl.runs.folder import write_atomically
from frossl.types import own_random_numbers

HEADER = "frossl"
"""The only key of the file's metadata: safetensors writes several in any order, and the bytes must repeat."""
NAMES = ("encoder.safetensors", "model.safetensors")
"""Of encoder files in a folder: of a run and of an export, and as Hugging Face has it."""


def save_encoder(encoder: Encoder, config: Config, folder: RunFolder, *, step: int | None = None) -> None:
    """Write an encoder into the run folder, with how images are prepared and the step that it is of."""
    design = Design.of(encoder, config, step=step)
    write_encoder(folder.encoder, encoder, design)
    folder.write_json(folder.preprocess.name, design.preprocess)


def write_card(folder: RunFolder) -> None:
    """The model card of a run, with the figures that it has by now."""
    encoder, design = read_encoder(folder.path)
    folder.write_text(folder.card.name, model_card(encoder, design, folder))


def write_encoder(path: Path, encoder: Encoder, design: Design) -> None:
    write_atomically(path, lambda file: file.write(to_bytes(encoder, design)))


def to_bytes(encoder: Encoder, design: Design) -> bytes:
    """What an encoder's file holds."""
    weights = {name: tensor.contiguous().cpu() for name, tensor in encoder.backbone.state_dict().items()}
    return bytes(save(weights, metadata={HEADER: design.to_json()}))


def load_encoder(path: str | Path) -> Encoder:
    """A trained encoder with its preprocessing, in evaluation mode: of a run folder, of an exported folder,
    or of a file `encoder.safetensors` alone. Nothing is unpickled.

    Call it with images (N, C, H, W), uint8 or float in [0, 1], of any size: pooled features (N, F).
    `feature_map` gives (N, F, h, w) and `patch_tokens` (N, h·w, F) from before the pooling.
    """
    return read_encoder(path)[0]


def read_encoder(path: str | Path) -> tuple[Encoder, Design]:
    file = _find(Path(path).expanduser())
    try:
        return from_bytes(file.read_bytes())
    except (InputError, OSError) as error:
        raise InputError(f"{file} cannot be read as an encoder: {error}") from None


def from_bytes(content: bytes) -> tuple[Encoder, Design]:
    """Read as bytes and not by the library's own reader of files, which takes paths in UTF-8 only."""
    try:
        weights = load(content)  # no larger than the file, which must hold all that its header lists
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        if HEADER not in metadata:
            raise InputError("it does not say what network it is of; give the file of a run")
        design = Design.from_json(metadata[HEADER])
        _compare(weights, design)
        with own_random_numbers():  # weights are drawn first, and then replaced
            encoder = design.build()
        encoder.backbone.load_state_dict(weights)
    except (SafetensorError, RuntimeError) as error:
        raise InputError(f"{first_line(error)}; give the file of a run") from None
    return encoder.eval(), design


def _compare(weights: dict[str, Tensor], design: Design) -> None:
    """Refuse weights of another network than the header names, before one of that size is built."""
    outline = design.outline()
    expected, found = ({name: _kind(w) for name, w in held.items()} for held in (outline, weights))
    if odd := sorted(name for name, _ in expected.items() ^ found.items()):
        name, none = odd[0], "none"
        raise InputError(
            f"its header names {design.in_words()}, with {expected.get(name, none)} {name}, and it holds "
            f"{found.get(name, none)}; give the file of a run"
        )


def _kind(weight: Tensor) -> str:
    """`real (64, 3, 7, 7)`: of any precision."""
    kind = "real" if weight.is_floating_point() else "complex" if weight.is_complex() else "whole"
    return f"{kind} {tuple(weight.shape)}"


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    for name in NAMES:
        if (path / name).is_file():
            return path / name
    if (path / "config.toml").is_file():
        again = f"frossl resume {shlex.quote(str(path))}"
        raise InputError(f"{path} has no encoder yet; finish the run with `{again}`")
    if path.is_dir():
        raise InputError(f"{path} holds neither a run nor an encoder; give the folder passed to --out")
    raise InputError(f"there is no run at {path}; check the path")
