"""Export format `torch-export`: a program for `torch.export.load`, which takes uint8 images."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from frossl.exporting.formats.record import ExportFormat, Files

if TYPE_CHECKING:
    from torch import nn

    from frossl.exporting.spec import EncoderSpec
    from frossl.networks import Encoder

FILE = "encoder.pt2"


def convert(encoder: Encoder, spec: EncoderSpec) -> Files:
    """Trace the encoder for any batch size, and serialize the program."""
    import torch

    from frossl.exporting.tracing import ExportedEncoder, quiet, random_images

    archive, shapes = io.BytesIO(), ({0: torch.export.Dim("batch", min=1)},)
    with quiet():
        program = torch.export.export(
            ExportedEncoder(encoder).eval(), (random_images(spec, 2),), dynamic_shapes=shapes
        )
        torch.export.save(program, archive)
    return {FILE: archive.getvalue()}


def load(files: Files, spec: EncoderSpec) -> nn.Module:
    """Load the program."""
    import torch

    from frossl.exporting.tracing import quiet

    with quiet():
        return torch.export.load(io.BytesIO(files[FILE])).module()


def usage(spec: EncoderSpec) -> list[str]:
    """Return Python that loads the program with torch."""
    return [
        "import torch",
        "",
        f'model = torch.export.load("{FILE}").module()',
        "features = model(images)",
    ]


FORMAT = ExportFormat(
    name="torch-export",
    summary="`torch.export.load`: uint8 images (N, C, size, size) → features, any N",
    files=(FILE,),
    convert=convert,
    load=load,
    takes="uint8",
    used_with="torch alone",
    usage=usage,
)
