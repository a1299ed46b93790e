"""What tracing formats share: the module that is traced, its example images, and silence."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from frossl.exporting.spec import EncoderSpec
from frossl.networks import Encoder


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


def random_images(spec: EncoderSpec, count: int) -> Tensor:
    """Return random images, the same in every call; the global random state is not used."""
    shape = (count, len(spec.mean), spec.size, spec.size)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings and prints of exporters, which are about their internals."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
