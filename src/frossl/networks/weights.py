"""Loading of weights from local files. Pickled code is never executed."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, nn

import frossl.compat  # noqa: F401  before timm, which imports torchvision
from frossl.errors import InputError

from timm.models import adapt_input_conv  # isort: skip

STATE_DICT_KEYS = ("state_dict", "model", "model_state")
"""Keys under which training scripts store the state dict in a checkpoint."""
NAME_PREFIXES = ("module.", "backbone.", "encoder.")
"""Prefixes that training scripts put before every parameter name."""


def load_weights(backbone: nn.Module, path: str | Path) -> None:
    """Load all weights of a backbone from a file, in place; a classifier in the file is ignored.

    timm adapts position embeddings and old names; a stem for three channels is repeated for others.

    Raises:
        InputError: If the file cannot be read, or weights are missing, unknown or of other shapes.
    """
    state = read_weights(path)
    try:
        state = _adapt(state, backbone)
    except Exception as error:  # timm's filters fail in many ways on foreign checkpoints
        raise _mismatch(path, f"{type(error).__name__}: {error}") from None
    try:
        missing, unexpected = backbone.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise _mismatch(path, str(error).splitlines()[-1].strip()) from None
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    classifiers = _names(backbone, "classifier")
    unexpected = [name for name in unexpected if not name.startswith(classifiers)]
    if missing or unexpected:
        raise _mismatch(
            path, f"{len(missing)} weights missing, {len(unexpected)} not known: {(missing + unexpected)[:3]}"
        )


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the state dict of a safetensors file or a torch checkpoint, without wrappers and prefixes.

    Raises:
        InputError: If there is no such file, or it holds no plain state dict.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the file in it, such as encoder.safetensors of a run")
    if not path.is_file():
        raise InputError(f"there is no file {path}; give a local file of weights")
    try:
        if path.suffix == ".safetensors":
            state: Any = load(path.read_bytes())
        else:
            _check_archive(path)
            state = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # damaged archives and refused pickles: torch has no common error class
        raise InputError(
            f"{path} cannot be read as plain weights ({type(error).__name__}); "
            "give safetensors or a torch state dict"
        ) from None
    for key in STATE_DICT_KEYS:
        state = state[key] if isinstance(state, dict) and isinstance(state.get(key), dict) else state
    if not isinstance(state, dict) or not all(_is_weight(*item) for item in state.items()):
        raise InputError(f"{path} holds no state dict; give safetensors or a torch state dict")
    weights: dict[str, Tensor] = state
    for prefix in NAME_PREFIXES:
        if weights and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def _check_archive(path: Path) -> None:
    """Refuse compressed archives: torch writes none, and a small one may expand to any size in memory."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        uncompressed = sum(member.file_size for member in archive.infolist())
    if uncompressed > path.stat().st_size:
        raise InputError(
            f"{path} is compressed ({uncompressed:,} bytes in it); give a file that torch.save wrote"
        )


def _is_weight(name: object, value: object) -> bool:
    """Return whether an entry is a named dense CPU tensor with memory for each of its elements."""
    if not isinstance(name, str) or not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return value.device.type == "cpu" and value.nbytes <= value.untyped_storage().nbytes()


def _adapt(state: dict[str, Tensor], backbone: nn.Module) -> dict[str, Tensor]:
    adapt = getattr(sys.modules[type(backbone).__module__], "checkpoint_filter_fn", None)
    state = dict(adapt(state, backbone) if adapt else state)
    expected = backbone.state_dict()
    for name in (f"{stem}.weight" for stem in _names(backbone, "first_conv")):
        if name in state and name in expected and state[name].ndim == 4 and state[name].shape[1] == 3:
            state[name] = adapt_input_conv(expected[name].shape[1], state[name])
    return state


def _names(backbone: nn.Module, kind: str) -> tuple[str, ...]:
    """Return the module names that timm's configuration of the backbone gives for a kind."""
    names = getattr(backbone, "pretrained_cfg", {}).get(kind) or ()
    return (names,) if isinstance(names, str) else tuple(names)


def _mismatch(path: str | Path, why: str) -> InputError:
    return InputError(
        f"{path} does not fit this backbone ({why}); choose the backbone, width and stem it was trained with "
        "(a run of frossl: start from its config.toml)"
    )
