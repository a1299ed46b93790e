"""An encoder for those without frossl: plain weights, torchvision, ONNX, torch.export, Hugging Face."""

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
from frossl.artifacts.card import model_card
from frossl.artifacts.design import Design
from frossl.artifacts.encoder import from_bytes, read_encoder, to_bytes, write_encoder
from frossl.errors import FrosslError, InputError
from frossl.networks import Encoder
from frossl.runs import RunFolder
from frossl.runs.folder import remove_if_empty, write_atomically
from frossl.runs.record import TEXT
from frossl.types import own_random_numbers

TOLERANCE = 1e-4
"""Of features against those of torch, relative to their largest; an export that differs more is an error."""
RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d")
"""That torchvision builds as timm does, with the same keys."""
CLASSES = 1000
"""Rows of torchvision's classifier."""


PREPROCESS, CARD, HUB_CARD = "preprocess.json", "model_card.md", "README.md"
CARDS = (CARD, HUB_CARD)


class Served(nn.Module):
    """What a graph file holds: images (N, C, size, size), uint8 -> features (N, F). Scaling and standardizing
    are inside; to bring an image to that size is left to what decodes it."""

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
    """Write the encoder of a run into the folder `out`, beside `preprocess.json` and its model card.

    Returns the file, or the folder where that is what is loaded. It has the encoder's features: they were
    compared.
    """
    encoder, design = read_encoder(folder.path)
    mark = out / PREPROCESS
    begun = mark.is_file()
    _write_text(mark, json.dumps(design.preprocess, indent=2) + "\n")
    try:
        with own_random_numbers():  # libraries draw weights before they load some
            written = FORMATS[format](encoder, design, out)
    except FrosslError:
        if not begun:
            mark.unlink()
            remove_if_empty(out)
        raise
    card, head = (HUB_CARD, HUB) if format == "hf" else (CARD, "")
    _write_text(out / card, head + model_card(encoder, design, folder, format))
    return written


def is_export(folder: Path) -> bool:
    """Whether a folder was begun by an export: `preprocess.json` is written first."""
    try:
        known = json.loads((folder / PREPROCESS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(known, dict) and {"size", "resize", "scale", "mean", "std"} <= known.keys()


def is_whole_export(folder: Path) -> bool:
    """Whether an export came to its end: the model card is written last."""
    return is_export(folder) and any((folder / card).is_file() for card in CARDS)


HUB = "---\nlibrary_name: timm\npipeline_tag: image-feature-extraction\ntags:\n- timm\n- frossl\n---\n"
"""What the hub reads before a card."""


def _safetensors(encoder: Encoder, design: Design, out: Path) -> Path:
    file, content = out / "encoder.safetensors", to_bytes(encoder, design)
    _compare(from_bytes(content)[0].backbone, encoder, design, file)
    _write(file, content)
    return file


def _torchvision(encoder: Encoder, design: Design, out: Path) -> Path:
    """Its ResNets have the keys of timm's, and a classifier: zeros, so that a strict load finds it."""
    from torchvision import models

    name = design.network.backbone.partition(".")[0]
    if name not in RESNETS:
        raise InputError(f"torchvision has no {name} with timm's weights, only ResNets; export onnx or hf")
    if changes := _changes(design):
        raise InputError(
            f"torchvision's {name} is not this network ({changes}); export onnx or torch-export, "
            "or train with --set network.stem=native --width 1"
        )
    model: nn.Module = getattr(models, name)()
    weights = {**encoder.backbone.state_dict()}
    weights |= {"fc.weight": torch.zeros(CLASSES, encoder.num_features), "fc.bias": torch.zeros(CLASSES)}
    model.load_state_dict(weights)
    model.fc = nn.Identity()
    file = out / "torchvision.safetensors"
    _compare(model, encoder, design, file)
    _write(file, save({key: value.contiguous().cpu() for key, value in weights.items()}))
    return file


def _onnx(encoder: Encoder, design: Design, out: Path) -> Path:
    for needed in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(needed) is None:
            raise InputError(f"{needed} is not installed; pip install 'frossl[onnx]'")
    import onnxruntime

    served, file = Served(encoder).eval(), out / "encoder.onnx"
    with _quiet():
        program = torch.onnx.export(
            served,
            (_images(design, 2),),
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

    _compare_served(run, encoder, design, file)
    _write(file, graph)
    return file


def _torch_export(encoder: Encoder, design: Design, out: Path) -> Path:
    file, archive = out / "encoder.pt2", io.BytesIO()
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    with _quiet():
        program = torch.export.export(Served(encoder).eval(), (_images(design, 2),), dynamic_shapes=shapes)
        torch.export.save(program, archive)
        again = torch.export.load(io.BytesIO(archive.getvalue())).module()
    _compare_served(again, encoder, design, file)
    _write(file, archive.getvalue())
    return file


def _hugging_face(encoder: Encoder, design: Design, out: Path) -> Path:
    """A folder as timm reads it from disk or from the hub."""
    if changes := _changes(design, cut=True):
        raise InputError(
            f"timm builds a network from a folder by its own arguments, and this one needs more ({changes}); "
            "export safetensors, whose model card has the lines that rebuild it"
        )
    import timm

    network, mean, std = design.network, list(design.mean), list(design.std)
    known: dict[str, Any] = encoder.backbone.pretrained_cfg  # type: ignore[assignment]
    pretrained = {
        "input_size": [len(mean), design.size, design.size],
        "fixed_input_size": False,
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "mean": mean,
        "std": std,
        "num_classes": 0,
        "first_conv": known.get("first_conv"),
        "classifier": known.get("classifier"),
    }
    config = {
        "architecture": network.backbone.partition(".")[0],
        "num_classes": 0,
        "num_features": encoder.num_features,
        "model_args": design.timm_options(),
        "pretrained_cfg": pretrained,
    }
    _write_text(_made(out) / "config.json", json.dumps(config, indent=2) + "\n")
    write_encoder(out / "model.safetensors", encoder, design)
    _compare(timm.create_model(f"local-dir:{out}", pretrained=True), encoder, design, out)
    return out


FORMATS: dict[str, Callable[[Encoder, Design, Path], Path]] = {
    "safetensors": _safetensors,
    "torchvision": _torchvision,
    "onnx": _onnx,
    "torch-export": _torch_export,
    "hf": _hugging_face,
}


def _changes(design: Design, *, cut: bool = False) -> str:
    """What this network has otherwise than its architecture. cut: only what timm's arguments cannot say."""
    network, found = design.network, []
    if network.stem != "native" and len(design.timm_lines()) > 1:
        found.append(f"stem {network.stem}")
    if design.cut is not None:
        found.append(f"the first {design.cut} stages only")
    if not cut and network.width != 1:
        found.append(f"width {network.width:g}")
    if not cut and network.channels != 3:
        found.append(f"{network.channels} channels")
    return ", ".join(found)


@torch.no_grad()
def _compare(model: nn.Module, encoder: Encoder, design: Design, where: Path) -> None:
    """A network that takes prepared images must have the features of the encoder."""
    prepared = encoder.preprocess(_images(design, 3))
    _close(model.eval()(prepared), encoder.backbone(prepared), where)


@torch.no_grad()
def _compare_served(model: Callable[[Tensor], Any], encoder: Encoder, design: Design, where: Path) -> None:
    """As above, for what takes images as they are; with other batches than it was traced with."""
    for count in (1, 5):
        images = _images(design, count)
        _close(model(images), encoder(images), where)


def _close(found: Tensor, expected: Tensor, where: Path) -> None:
    off = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12))
    if not off <= TOLERANCE:
        raise FrosslError(
            f"{where} gives other features than the encoder (by {off:.1e}); do not use it, and tell us of it"
        )


def _images(design: Design, count: int) -> Tensor:
    """Something to look at, the same every time, without touching anybody's random numbers."""
    shape = (count, len(design.mean), design.size, design.size)
    random = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters talk about their own insides."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _write(path: Path, content: bytes) -> None:
    _made(path.parent)
    write_atomically(path, lambda file: file.write(content))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_text(path: Path, text: str) -> None:
    _write(path, text.encode(**TEXT))
