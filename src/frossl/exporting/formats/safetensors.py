"""Export format `safetensors`: weights with timm's keys; frossl rebuilds the network from the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frossl.exporting.formats.record import ExportFormat, Files

if TYPE_CHECKING:
    from torch import nn

    from frossl.exporting.spec import EncoderSpec
    from frossl.networks import Encoder

FILE = "encoder.safetensors"


def convert(encoder: Encoder, spec: EncoderSpec) -> Files:
    """Serialize an encoder as in a run folder."""
    from frossl.exporting.encoder import to_bytes

    return {FILE: to_bytes(encoder, spec)}


def load(files: Files, spec: EncoderSpec) -> nn.Module:
    """Load the backbone."""
    from frossl.exporting.encoder import from_bytes

    return from_bytes(files[FILE])[0].backbone


def usage(spec: EncoderSpec) -> list[str]:
    """Return Python that loads the trained backbone with timm alone."""
    create, *changes = spec.timm_lines()
    if not changes:
        whole = create.removesuffix(")") + f', checkpoint_path="{FILE}")'
        return ["import timm", "", whole, "model.eval()"]
    return [
        "import timm",
        "from safetensors.torch import load_file",
        "from torch import nn",
        "",
        create,
        *changes,
        f'model.load_state_dict(load_file("{FILE}"))',
        "model.eval()",
    ]


FORMAT = ExportFormat(
    name="safetensors",
    summary="timm, with the code in the model card; `frossl.load_encoder`",
    files=(FILE,),
    convert=convert,
    load=load,
    takes="preprocessed",
    used_with="timm alone",
    usage=usage,
    encoder_file=FILE,
)
