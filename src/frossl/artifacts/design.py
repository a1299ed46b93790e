"""All of an encoder but its weights: what rebuilds the network, and how images are prepared for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from frossl.config import Config, Network
from frossl.errors import FrosslError, InputError
from frossl.networks import STAGES, Encoder, build_backbone, timm_lines, timm_options

BUILT_FROM = ("backbone", "width", "stages", "stem", "channels")
"""Settings that shape a backbone; the others say where its weights began and how they moved."""
RESIZE = "shorter side to `size`, bicubic, antialiased; then the central square"


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
        try:
            values = json.loads(text)
            prepare = values["preprocess"]
            return cls(
                Network(**{name: values["network"][name] for name in BUILT_FROM}),
                int(values["view_size"]),
                int(prepare["size"]),
                tuple(float(x) for x in prepare["mean"]),
                tuple(float(x) for x in prepare["std"]),
                None if values.get("step") is None else int(values["step"]),
            )
        except (ValueError, KeyError, TypeError, FrosslError) as error:
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
            "scale": "from 0–255 to 0–1",
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @property
    def cut(self) -> int | None:
        """The stages that are left of a ResNet, where not all are."""
        stages = self.network.stages
        return None if stages is None or stages == len(STAGES) else stages

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
