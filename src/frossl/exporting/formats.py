"""Export of encoders for use without frossl: safetensors, torchvision, ONNX, torch.export, Hugging Face."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

import frossl.compat  # noqa: F401  before torchvision
from frossl.errors import FrosslError, InputError
from frossl.exporting.card import model_card
from frossl.exporting.encoder import from_bytes, read_encoder, to_bytes, write_encoder
from frossl.exporting.spec import EncoderSpec
from frossl.networks import Encoder
from frossl.runs import RunFolder
from frossl.runs.folder import remove_if_empty, write_atomically
from frossl.runs.record import TEXT
from frossl.types import isolated_rng

MAX_RELATIVE_ERROR = 1e-4
"""Largest difference of an export's features from the encoder's, relative to the largest feature."""
TORCHVISION_RESNETS = (
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d",
)  # fmt: skip
"""Networks that torchvision builds as timm does, with the same keys."""
TORCHVISION_CLASSES = 1000
"""Number of rows of torchvision's classifier."""

PREPROCESS_FILE = "preprocess.json"
CARD_FILE = "model_card.md"
HUB_CARD_FILE = "README.md"
HUB_FRONT_MATTER = (
    "---\nlibrary_name: timm\npipeline_tag: image-feature-extraction\ntags:\n- timm\n- frossl\n---\n"
)
"""YAML front matter of model cards on the Hugging Face Hub."""


class ExportedEncoder(nn.Module):
    """Module that is traced for ONNX and torch.export: uint8 images (N, C, size, size) -> features (N, F).

    Scaling and standardization are included; images must be resized by the caller.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.backbone = encoder.backbone
        self.register_buffer("mean", 255 * encoder.mean)
        self.register_buffer("std", 255 * encoder.std)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.backbone((images.float() - self.mean) / self.std)
        return features


def export_encoder(folder: RunFolder, format: str, out: Path) -> Path:
    """Export the encoder of a run, together with `preprocess.json` and a model card.

    The exported model is loaded again, and its features are compared with those of the encoder.

    Args:
        folder: The run folder.
        format: One of `FORMATS`.
        out: Folder to write into; it is created if needed.

    Returns:
        The file to load, or the folder in the case of "hf".

    Raises:
        InputError: If the format cannot hold this network, or needs a package that is not installed.
        FrosslError: If the features differ.
    """
    encoder, spec = read_encoder(folder.path)
    preprocess = out / PREPROCESS_FILE
    existed = preprocess.is_file()
    _write_text(preprocess, json.dumps(spec.preprocess, indent=2) + "\n")
    try:
        with isolated_rng():  # libraries initialize weights before they load them
            written = FORMATS[format](encoder, spec, out)
    except FrosslError:
        if not existed:
            preprocess.unlink()
            remove_if_empty(out)
        raise
    card, front_matter = (HUB_CARD_FILE, HUB_FRONT_MATTER) if format == "hf" else (CARD_FILE, "")
    _write_text(out / card, front_matter + model_card(encoder, spec, folder, format))
    return written


def is_export(folder: Path) -> bool:
    """Return whether a folder holds an export, complete or not: `preprocess.json` is written first."""
    try:
        content = json.loads((folder / PREPROCESS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"size", "resize", "scale", "mean", "std"} <= content.keys()


def is_whole_export(folder: Path) -> bool:
    """Return whether a folder holds a complete export: the model card is written last."""
    return is_export(folder) and any((folder / card).is_file() for card in (CARD_FILE, HUB_CARD_FILE))


def _safetensors(encoder: Encoder, spec: EncoderSpec, out: Path) -> Path:
    file, content = out / "encoder.safetensors", to_bytes(encoder, spec)
    _check_preprocessed(from_bytes(content)[0].backbone, encoder, spec, file)
    _write(file, content)
    return file


def _torchvision(encoder: Encoder, spec: EncoderSpec, out: Path) -> Path:
    """Write weights with the keys of torchvision; its classifier is zero, so that a strict load succeeds."""
    from torchvision import models

    name = spec.network.backbone.partition(".")[0]
    if name not in TORCHVISION_RESNETS:
        raise InputError(f"torchvision has no {name} with timm's weights, only ResNets; export onnx or hf")
    if changes := _changes(spec):
        raise InputError(
            f"torchvision's {name} is not this network ({changes}); export onnx or torch-export, "
            "or train with --set network.stem=native --width 1"
        )
    model: nn.Module = getattr(models, name)()
    weights = {**encoder.backbone.state_dict()}
    weights |= {"fc.weight": torch.zeros(TORCHVISION_CLASSES, encoder.num_features)}
    weights |= {"fc.bias": torch.zeros(TORCHVISION_CLASSES)}
    model.load_state_dict(weights)
    model.fc = nn.Identity()
    file = out / "torchvision.safetensors"
    _check_preprocessed(model, encoder, spec, file)
    _write(file, save({key: value.contiguous().cpu() for key, value in weights.items()}))
    return file


def _onnx(encoder: Encoder, spec: EncoderSpec, out: Path) -> Path:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            raise InputError(f"{package} is not installed; pip install 'frossl[onnx]'")
    import onnxruntime

    exported, file = ExportedEncoder(encoder).eval(), out / "encoder.onnx"
    with _quiet():
        program = torch.onnx.export(
            exported,
            (_images(spec, 2),),
            dynamo=True,
            input_names=["images"],
            output_names=["features"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            verbose=False,
        )
    if program is None:
        raise FrosslError("torch.onnx made no program; export torch-export")
    graph = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    def run(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"images": images.numpy()})[0])

    _check_raw(run, encoder, spec, file)
    _write(file, graph)
    return file


def _torch_export(encoder: Encoder, spec: EncoderSpec, out: Path) -> Path:
    file, archive = out / "encoder.pt2", io.BytesIO()
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    with _quiet():
        program = torch.export.export(
            ExportedEncoder(encoder).eval(), (_images(spec, 2),), dynamic_shapes=shapes
        )
        torch.export.save(program, archive)
        loaded = torch.export.load(io.BytesIO(archive.getvalue())).module()
    _check_raw(loaded, encoder, spec, file)
    _write(file, archive.getvalue())
    return file


def _hugging_face(encoder: Encoder, spec: EncoderSpec, out: Path) -> Path:
    """Write a folder that timm loads from disk or from the Hugging Face Hub."""
    if changes := _changes(spec, beyond_timm=True):
        raise InputError(
            f"timm builds a network from a folder by its own arguments, and this one needs more ({changes}); "
            "export safetensors, whose model card has the lines that rebuild it"
        )
    import timm

    network, mean, std = spec.network, list(spec.mean), list(spec.std)
    default: dict[str, Any] = encoder.backbone.pretrained_cfg  # type: ignore[assignment]
    pretrained = {
        "input_size": [len(mean), spec.size, spec.size],
        "fixed_input_size": False,
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "mean": mean,
        "std": std,
        "num_classes": 0,
        "first_conv": default.get("first_conv"),
        "classifier": default.get("classifier"),
    }
    config = {
        "architecture": network.backbone.partition(".")[0],
        "num_classes": 0,
        "num_features": encoder.num_features,
        "model_args": spec.timm_options(),
        "pretrained_cfg": pretrained,
    }
    _write_text(out / "config.json", json.dumps(config, indent=2) + "\n")
    write_encoder(out / "model.safetensors", encoder, spec)
    _check_preprocessed(timm.create_model(f"local-dir:{out}", pretrained=True), encoder, spec, out)
    return out


FORMATS: dict[str, Callable[[Encoder, EncoderSpec, Path], Path]] = {
    "safetensors": _safetensors,
    "torchvision": _torchvision,
    "onnx": _onnx,
    "torch-export": _torch_export,
    "hf": _hugging_face,
}


def _changes(spec: EncoderSpec, *, beyond_timm: bool = False) -> str:
    """Describe how a network differs from its architecture.

    With `beyond_timm`, only what the arguments of timm cannot express.
    """
    network, changes = spec.network, []
    if network.stem != "native" and len(spec.timm_lines()) > 1:
        changes.append(f"stem {network.stem}")
    if spec.truncated_stages is not None:
        changes.append(f"the first {spec.truncated_stages} stages only")
    if not beyond_timm and network.width != 1:
        changes.append(f"width {network.width:g}")
    if not beyond_timm and network.channels != 3:
        changes.append(f"{network.channels} channels")
    return ", ".join(changes)


@torch.no_grad()
def _check_preprocessed(model: nn.Module, encoder: Encoder, spec: EncoderSpec, path: Path) -> None:
    """Compare a model that takes preprocessed images with the encoder."""
    images = encoder.preprocess(_images(spec, 3))
    _check_close(model.eval()(images), encoder.backbone(images), path)


@torch.no_grad()
def _check_raw(model: Callable[[Tensor], Any], encoder: Encoder, spec: EncoderSpec, path: Path) -> None:
    """Compare a model that takes uint8 images with the encoder, at batch sizes that were not traced."""
    for count in (1, 5):
        images = _images(spec, count)
        _check_close(model(images), encoder(images), path)


def _check_close(found: Tensor, expected: Tensor, path: Path) -> None:
    error = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12))
    if not error <= MAX_RELATIVE_ERROR:
        raise FrosslError(
            f"{path} gives other features than the encoder (by {error:.1e}); do not use it, and report a bug"
        )


def _images(spec: EncoderSpec, count: int) -> Tensor:
    """Return random images, the same in every call; the global random state is not used."""
    shape = (count, len(spec.mean), spec.size, spec.size)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings and prints of exporters, which are about their internals."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(content))


def _write_text(path: Path, text: str) -> None:
    _write(path, text.encode(**TEXT))
