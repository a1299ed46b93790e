"""Specification of an encoder: everything but its weights, i.e. network and preprocessing."""

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

NETWORK_KEYS = ("backbone", "width", "stages", "stem", "channels")
"""Settings that determine the shapes of a backbone; the others are about initial weights and training."""
RESIZE_TEXT = "shorter side to `size`, bicubic, antialiased; then the central square"
"""Value of `resize` in the header and in `preprocess.json`."""
SCALE_TEXT = "from 0–255 to 0–1"
"""Value of `scale` in the header and in `preprocess.json`."""
PREPROCESS_KEYS = {"size": "", "resize": RESIZE_TEXT, "scale": SCALE_TEXT, "mean": "", "std": ""}
"""Keys of the preprocessing in a header; a key with a text here must have exactly that value."""
NETWORK_TYPES: dict[str, tuple[type, ...]] = {
    "backbone": (str,),
    "width": (int, float),
    "stages": (int, NoneType),
    "stem": (str, NoneType),
    "channels": (int, NoneType),
}
"""Types of the settings in a header."""
STEMS = (None, "native", "small", "fast")
MAX_SIDE = 8192
"""Largest side of an image or a view in pixels; position embeddings grow with it."""


def _checked_object(value: Any, names: set[str], *, optional: Collection[str] = ()) -> dict[str, Any]:
    """Return a JSON object if it has these keys, perhaps the optional ones, and no others."""
    if not isinstance(value, dict) or value.keys() - set(optional) != names:
        raise ValueError(f"expected {', '.join(sorted(names))}")
    return value


def _checked_side(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_SIDE:
        raise ValueError(f"a size of {value!r}, not 1 to {MAX_SIDE} pixels")
    return value


def _checked_step(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"a step of {value!r}")
    return value


def _checked_numbers(values: Any, count: int, *, above: float = -inf) -> tuple[float, ...]:
    """Return a list of finite numbers, one per channel."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"not {count} numbers, one for each channel")
    if not all(type(value) in (int, float) and above < value < inf for value in values):
        raise ValueError("mean or std are not valid numbers")
    return tuple(map(float, values))


@dataclass(frozen=True)
class EncoderSpec:
    """Network and preprocessing of an encoder, stored in the header of its file."""

    network: Network
    view_size: int
    """Pixels of the largest training views, for which position embeddings are made."""
    size: int
    """Pixels of the images that the encoder takes."""
    mean: tuple[float, ...]
    """Mean per channel, of images in [0, 1]."""
    std: tuple[float, ...]
    """Standard deviation per channel, of images in [0, 1]."""
    step: int | None = None
    """Number of training steps; None if unknown."""

    @classmethod
    def of(cls, encoder: Encoder, config: Config, *, step: int | None = None) -> EncoderSpec:
        """Describe an encoder.

        Args:
            encoder: The encoder.
            config: Configuration of its run, with all defaults filled in.
            step: Number of training steps, if known.
        """
        network = Network(**{name: getattr(config.network, name) for name in NETWORK_KEYS})
        view_size = max(view.size for view in config.views)
        mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()
        return cls(network, view_size, encoder.size, tuple(mean), tuple(std), step)

    @classmethod
    def from_json(cls, text: str) -> EncoderSpec:
        """Read a specification from the header of a file.

        Files are not trusted: types, ranges and names are checked.

        Raises:
            InputError: If it is not a valid specification.
        """
        try:
            values = _checked_object(
                json.loads(text), {"network", "view_size", "preprocess"}, optional=["step"]
            )
            network = _checked_object(values["network"], set(NETWORK_KEYS))
            preprocess = _checked_object(values["preprocess"], set(PREPROCESS_KEYS))
            if any(preprocess[name] != text for name, text in PREPROCESS_KEYS.items() if text):
                raise ValueError("unknown preprocessing")
            for name, value in network.items():
                if type(value) not in NETWORK_TYPES[name] or (name == "stem" and value not in STEMS):
                    raise ValueError(f"{name} is {value!r}")
            channels = network["channels"] or 3
            return cls(
                Network(**network),
                _checked_side(values["view_size"]),
                _checked_side(preprocess["size"]),
                _checked_numbers(preprocess["mean"], channels),
                _checked_numbers(preprocess["std"], channels, above=0),
                _checked_step(values.get("step")),
            )
        except (ValueError, TypeError, RecursionError, FrosslError) as error:
            raise InputError(
                f"its header does not describe an encoder of frossl ({error}); give the file of a run"
            ) from None

    def to_json(self) -> str:
        """Return the specification as the JSON of a header."""
        network = {name: getattr(self.network, name) for name in NETWORK_KEYS}
        values = {"network": network, "view_size": self.view_size, "preprocess": self.preprocess}
        return json.dumps(values | ({} if self.step is None else {"step": self.step}))

    @property
    def preprocess(self) -> dict[str, Any]:
        """Content of `preprocess.json`."""
        return {
            "size": self.size,
            "resize": RESIZE_TEXT,
            "scale": SCALE_TEXT,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @property
    def truncated_stages(self) -> int | None:
        """Number of stages of a truncated ResNet; None if it has all of them."""
        stages = self.network.stages
        return None if stages is None or stages == len(STAGES) else stages

    def empty_state_dict(self) -> dict[str, Tensor]:
        """Return all weights by name on the meta device, without memory for their values."""
        try:
            with torch.device("meta"):
                backbone = build_backbone(self.network, size=self.view_size, pretrained=False)
        except FrosslError:
            raise
        except Exception as error:  # timm raises errors of many types for sizes that it cannot build
            raise InputError(
                f"{self.description()} cannot be built for {self.view_size} pixels ({type(error).__name__}); "
                "give the file of a run"
            ) from None
        return backbone.state_dict()

    def build(self) -> Encoder:
        """Build the encoder with newly initialized weights."""
        backbone = build_backbone(self.network, size=self.view_size, pretrained=False)
        return Encoder(backbone, size=self.size, mean=self.mean, std=self.std)

    def timm_options(self) -> dict[str, Any]:
        """Return the arguments with which timm builds the backbone."""
        return timm_options(self.network, size=self.view_size)

    def timm_lines(self) -> list[str]:
        """Return Python that builds the backbone with timm alone; one line if its arguments are enough."""
        return timm_lines(self.network, size=self.view_size)

    def description(self) -> str:
        """Return a short description: `resnet18, width 0.5, stem fast, the first 3 stages`."""
        network, words = self.network, [self.network.backbone]
        if network.width != 1:
            words.append(f"width {network.width:g}")
        if network.stem != "native":
            words.append(f"stem {network.stem}")
        if self.truncated_stages is not None:
            words.append(f"the first {self.truncated_stages} stages")
        return ", ".join(words)

    def changes(self, *, beyond_timm: bool = False) -> str:
        """Describe how the network differs from its architecture; empty if it does not.

        Args:
            beyond_timm: Name only what the arguments of timm cannot express.
        """
        network, changes = self.network, []
        if network.stem != "native" and len(self.timm_lines()) > 1:
            changes.append(f"stem {network.stem}")
        if self.truncated_stages is not None:
            changes.append(f"the first {self.truncated_stages} stages only")
        if not beyond_timm and network.width != 1:
            changes.append(f"width {network.width:g}")
        if not beyond_timm and network.channels != 3:
            changes.append(f"{network.channels} channels")
        return ", ".join(changes)
