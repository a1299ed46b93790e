"""Export format `onnx`: a graph for onnxruntime and others, which takes uint8 images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from frossl.errors import FrosslError
from frossl.exporting.formats.record import ExportFormat, Files

if TYPE_CHECKING:
    from torch import Tensor

    from frossl.exporting.spec import EncoderSpec
    from frossl.networks import Encoder

FILE = "encoder.onnx"


def convert(encoder: Encoder, spec: EncoderSpec) -> Files:
    """Trace the encoder for any batch size, and serialize the graph."""
    import torch

    from frossl.exporting.tracing import ExportedEncoder, quiet, random_images

    with quiet():
        program = torch.onnx.export(
            ExportedEncoder(encoder).eval(),
            (random_images(spec, 2),),
            dynamo=True,
            input_names=["images"],
            output_names=["features"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            verbose=False,
        )
    if program is None:
        raise FrosslError("torch.onnx made no program; export torch-export")
    return {FILE: program.model_proto.SerializeToString()}


def load(files: Files, spec: EncoderSpec) -> Callable[[Tensor], Tensor]:
    """Load the graph with onnxruntime."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(files[FILE], providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def usage(spec: EncoderSpec) -> list[str]:
    """Return Python that loads the graph with onnxruntime."""
    return [
        "import onnxruntime",
        "",
        f'session = onnxruntime.InferenceSession("{FILE}")',
        '(features,) = session.run(None, {"images": images})  # a NumPy array',
    ]


FORMAT = ExportFormat(
    name="onnx",
    summary="onnxruntime and others: uint8 images (N, C, size, size) → features, any N",
    files=(FILE,),
    convert=convert,
    load=load,
    takes="uint8",
    used_with="onnxruntime alone",
    usage=usage,
    extra="onnx",
    packages=("onnx", "onnxscript", "onnxruntime"),
)
