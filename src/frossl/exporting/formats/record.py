"""Record of an export format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from frossl.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from frossl.exporting.spec import EncoderSpec
    from frossl.networks import Encoder

PREPROCESS_FILE = "preprocess.json"
CARD_FILE = "model_card.md"

Files = dict[str, bytes]
"""Content of files by name."""


def accept(spec: EncoderSpec) -> None:
    """Accept every network."""


@dataclass(frozen=True)
class ExportFormat:
    """Everything that frossl knows about an export format.

    `export_encoder` checks packages and network, makes the model card, converts the encoder in memory, loads
    the result and compares its features with the encoder's. Only then does it write files.
    """

    name: str
    """Value of `--format`."""
    summary: str
    """What reads it, in one line of Markdown: for `frossl list formats` and the docs."""
    files: tuple[str, ...]
    """Names of the files; `frossl.export` returns the path of a single file, or the folder of several."""
    convert: Callable[[Encoder, EncoderSpec], Files]
    """Serialize an encoder; nothing is written yet."""
    load: Callable[[Files, EncoderSpec], Callable[[Tensor], Tensor]]
    """Read the files as their users will, and return a function images -> features."""
    takes: Literal["preprocessed", "uint8"]
    """Images that the exported model takes: preprocessed ones, or uint8 (N, C, size, size)."""
    used_with: str
    """Title of the usage section in the model card, after "With ": `onnxruntime alone`."""
    usage: Callable[[EncoderSpec], list[str]]
    """Lines of Python that load the files without frossl, for the model card."""
    check_network: Callable[[EncoderSpec], None] = accept
    """Raise an InputError if the format cannot hold a network."""
    extra: str | None = None
    """Extra of frossl that installs `packages`."""
    packages: tuple[str, ...] = ()
    """Packages needed that are not requirements of frossl."""
    encoder_file: str | None = None
    """The file that `frossl.load_encoder` reads; None if it cannot read this format."""
    card: str = CARD_FILE
    """Name of the model card."""
    front_matter: str = ""
    """Text before the model card."""

    def check_packages(self) -> None:
        """Raise an InputError if a package is not installed."""
        for package in self.packages:
            if find_spec(package) is None:
                raise InputError(f"{package} is not installed; pip install 'frossl[{self.extra}]'")
