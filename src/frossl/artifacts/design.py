"""All of an encoder but its weights: what rebuilds the network, and how images are prepared for it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from frossl.config import Config, Network
from frossl.errors import FrosslError, InputError
from frossl.networks import STAGES, Encoder, build_backbone, timm_lines, timm_options

BUILT_FROM = ("backbone", "width", "stages", "stem", "channels")
"""Settings that shape a backbone; the others say where its weights began and how they moved."""
RESIZE = "shorter side to `size`, bicubic, antialiased; then the central square"

SCALE = "from 0–255 to 0–1"
PREPARED = {"size": "", "resize": RESIZE, "scale": SCALE, "mean": "", "std": ""}
"""Keys of a header's preprocessing; those with a text here must have exactly that text."""
KINDS: dict[str, tuple[type, ...]] = {
    "backbone": (str,),
    "width": (int, float),
    "stages": (int, NoneType),
    "stem": (str, NoneType),
    "channels": (int, NoneType),
}
STEMS = (None, "native", "small", "fast")
LARGEST_SIDE = 8192
"""Pixels along the side of an image or a view; position embeddings grow with it."""


def _holding(value: Any, names: set[str], *, optional: Collection[str] = ()) -> dict[str, Any]:
    """A JSON object with these keys, perhaps the optional ones, and no others."""
    if not isinstance(value, dict) or value.keys() - set(optional) != names:
        raise ValueError(f"expected {', '.join(sorted(names))}")
    return value


def _side(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= LARGEST_SIDE:
        raise ValueError(f"a size of {value!r}, not 1 to {LARGEST_SIDE} pixels")
    return value


def _step(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"a step of {value!r}")
    return value


def _numbers(values: Any, count: int, *, above: float = -inf) -> tuple[float, ...]:
    """One for each channel."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"not {count} numbers, one for each channel")
    if not all(type(value) in (int, float) and above < value < inf for value in values):
        raise ValueError("mean or std are no numbers that work")
    return tuple(map(float, values))


@dataclass(frozen=True)
class Design:
    """Rebuilds an encoder; kept in the header of its file, so that the file is enough."""

    network: Network
    view_size: int
    """Pixels of the largest views it was trained on: position embeddings have a size."""
    size: int
    """Pixels of the images it is asked with."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    step: int | None = None
    """Steps that its run had done; None where that is not known."""

    @classmethod
    def of(cls, encoder: Encoder, config: Config, *, step: int | None = None) -> Design:
        """config: of the run, settled. step: how many it had done."""
        network = Network(**{name: getattr(config.network, name) for name in BUILT_FROM})
        view_size = max(spec.size for spec in config.views)
        mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()
        return cls(network, view_size, encoder.size, tuple(mean), tuple(std), step)

    @classmethod
    def from_json(cls, text: str) -> Design:
        """Nothing is believed of what a file says: types, ranges and names are checked."""
        try:
            values = _holding(json.loads(text), {"network", "view_size", "preprocess"}, optional=["step"])
            network = _holding(values["network"], set(BUILT_FROM))
            prepare = _holding(values["preprocess"], set(PREPARED))
            if any(prepare[name] != text for name, text in PREPARED.items() if text):
                raise ValueError("images are prepared in another way")
            for name, value in network.items():
                if type(value) not in KINDS[name] or (name == "stem" and value not in STEMS):
                    raise ValueError(f"{name} is {value!r}")
            channels = network["channels"] or 3
            return cls(
                Network(**network),
                _side(values["view_size"]),
                _side(prepare["size"]),
                _numbers(prepare["mean"], channels),
                _numbers(prepare["std"], channels, above=0),
                _step(values.get("step")),
            )
        except (ValueError, TypeError, RecursionError, FrosslError) as error:
            raise InputError(
                f"its header does not describe an encoder of frossl ({error}); give the file of a run"
            ) from None

    def to_json(self) -> str:
        network = {name: getattr(self.network, name) for name in BUILT_FROM}
        values = {"network": network, "view_size": self.view_size, "preprocess": self.preprocess}
        return json.dumps(values | ({} if self.step is None else {"step": self.step}))

    @property
    def preprocess(self) -> dict[str, Any]:
        """What `preprocess.json` holds."""
        return {
            "size": self.size,
            "resize": RESIZE,
            "scale": SCALE,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @property
    def cut(self) -> int | None:
        """The stages that are left of a ResNet, where not all are."""
        stages = self.network.stages
        return None if stages is None or stages == len(STAGES) else stages

    def outline(self) -> dict[str, Tensor]:
        """Every weight by its name, without memory for its numbers."""
        try:
            with torch.device("meta"):
                backbone = build_backbone(self.network, size=self.view_size, pretrained=False)
        except FrosslError:
            raise
        except Exception as error:  # timm has no one error for a size that an architecture cannot have
            raise InputError(
                f"{self.in_words()} cannot be built for {self.view_size} pixels ({type(error).__name__}); "
                "give the file of a run"
            ) from None
        return backbone.state_dict()

    def build(self) -> Encoder:
        """The encoder with weights as they are before training."""
        backbone = build_backbone(self.network, size=self.view_size, pretrained=False)
        return Encoder(backbone, size=self.size, mean=self.mean, std=self.std)

    def timm_options(self) -> dict[str, Any]:
        """Arguments with which timm builds the backbone."""
        return timm_options(self.network, size=self.view_size)

    def timm_lines(self) -> list[str]:
        """Python that rebuilds the backbone by plain timm; one line where timm's arguments are enough."""
        return timm_lines(self.network, size=self.view_size)

    def in_words(self) -> str:
        """`resnet18, width 0.5, stem fast, the first 3 stages`."""
        network, words = self.network, [self.network.backbone]
        if network.width != 1:
            words.append(f"width {network.width:g}")
        if network.stem != "native":
            words.append(f"stem {network.stem}")
        if self.cut is not None:
            words.append(f"the first {self.cut} stages")
        return ", ".join(words)
