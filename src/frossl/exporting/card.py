"""Model card in Markdown: facts, accuracy, preprocessing and usage of an encoder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from frossl.config import Config
from frossl.exporting.formats import FORMATS
from frossl.exporting.formats.record import ExportFormat
from frossl.exporting.spec import EncoderSpec
from frossl.networks import Encoder
from frossl.runs import EvaluationRecord, RunFolder, outcome_of
from frossl.runs.outcome import NOT_MEASURED
from frossl.runs.records import newest_evaluations
from frossl.text import method_title

ROW_TITLES = {
    "pixels": "raw pixels",
    "colors": "color statistics",
    "untrained": "untrained network",
    "trained": "this encoder",
}
"""Titles of the rows of an evaluation record."""


def model_card(encoder: Encoder, spec: EncoderSpec, folder: RunFolder, format: str = "safetensors") -> str:
    """Write the model card of an encoder.

    Args:
        encoder: The trained encoder.
        spec: Its specification.
        folder: The run folder, for settings, provenance and figures.
        format: Format of the file beside the card, one of `FORMATS`; the usage section is for that file.

    Returns:
        The card as Markdown.
    """
    config, provenance = Config.read(folder.config_file), folder.provenance()
    status = folder.read_status()
    name = plain(folder.path.absolute().name)
    seconds = folder.training_seconds()
    initial = "weights from a file" if config.network.weights else "random weights"
    facts = {
        "network": f"{spec.description()}; {_millions(encoder)} M parameters, "
        f"{encoder.num_features} features",
        "method": f"{_method(config)}, {sum(view.count for view in config.views)} views of "
        f"{', '.join(dict.fromkeys(f'{view.size} px' for view in config.views))}",
        "images": f"{provenance['images']:,} of {plain(Path(config.data.source).name)}, "
        f"at {config.data.size} px",
        "training": f"{status.step:,} steps of {config.train.batch_size} images from {initial}, "
        f"{seconds / 60:.1f} minutes on {_machine(config, provenance)}, seed {config.train.seed}",
        "made with": ", ".join(
            f"{name} {provenance['versions'].get(name)}" for name in ("frossl", "torch", "timm")
        ),
    }
    return "\n".join(
        [
            f"# {name}",
            "",
            "An image encoder, trained without labels by frossl.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items()),
            "",
            "## Evaluation",
            "",
            *_verdict_lines(folder),
            *_accuracy_table(folder),
            "",
            "## Preprocessing",
            "",
            f"{spec.preprocess['resize'].replace('`size`', f'{spec.size} px')}; {_channels(spec)} "
            f"{spec.preprocess['scale']}; minus {_numbers(spec.mean)}, "
            f"divided by {_numbers(spec.std)}. "
            "`preprocess.json` holds the same in machine-readable form.",
            "",
            "## Usage",
            "",
            *_usage_lines(spec, FORMATS[format]),
            "## Limitations",
            "",
            "The features fit images like those of the training set; evaluate them before using them on "
            "others. The rights to the weights belong to whoever trained the encoder; frossl claims none.",
            "",
        ]
    )


def _usage_lines(spec: EncoderSpec, format: ExportFormat) -> list[str]:
    """Return the usage section: how to load the file and what to pass to it, in Python."""
    shape = f"(N, C, {spec.size}, {spec.size})"
    images = {
        "preprocessed": "preprocessed images",
        "uint8": f"uint8 images {shape}; scaling and standardization are part of the file",
    }
    blocks = {f"With {format.used_with}, for {images[format.takes]}:": format.usage(spec)}
    if format.encoder_file is not None:
        load = f'encoder = frossl.load_encoder("{format.encoder_file}")'
        call = "features = encoder(images)  # (N, C, H, W), uint8 -> (N, F)"
        blocks = {"With frossl, which preprocesses the images:": ["import frossl", "", load, call]} | blocks
    return [line for title, lines in blocks.items() for line in (title, "", "```python", *lines, "```", "")]


def plain(text: str) -> str:
    """Return a name as a Markdown code span, without characters that Markdown or HTML would interpret."""
    visible = "".join(c if c.isprintable() and c not in "`|" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return f"`{visible.strip() or '?'}`"


def _method(config: Config) -> str:
    """Return the name of the method, as a code span with its file's digest if it is the user's own."""
    objective, title = config.objective, method_title(config.objective.method)
    if objective.digest is not None:
        return f"{plain(title)}, code {plain(objective.digest)}"
    return title if title.isidentifier() else plain(title)


def _verdict_lines(folder: RunFolder) -> list[str]:
    """Return the verdict, without the reason why accuracy was not measured, which may name a path."""
    verdict, lines = outcome_of(folder), []
    if verdict.get("kind") not in (None, "warming up"):
        lines = [f"**{verdict['kind']}**: {verdict.get('reason', '')}."]
        lines += [f"What to try: {verdict['advice']}."] if verdict.get("advice") else []
    if accuracy := verdict.get("accuracy"):
        lines += [f"{NOT_MEASURED.capitalize() if accuracy.startswith(NOT_MEASURED) else accuracy}."]
    return [text for line in lines for text in (line, "")]


def _accuracy_table(folder: RunFolder) -> list[str]:
    """Return a table of the latest accuracies, by protocol and data set, with their intervals."""
    step = folder.read_status().step  # records of other checkpoints are of other encoders
    records = newest_evaluations(folder.evaluation, step=step)
    if not records:
        return ["Not evaluated yet; with labels, `frossl knn` and `frossl probe` measure the accuracy."]
    rows = dict.fromkeys(row for record in records for row in record.percent)
    titles = [f"{record.protocol}, {plain(Path(record.data).name)}" for record in records]
    return [
        "Accuracy in percent, with 95% intervals.",
        "",
        "| | " + " | ".join(titles) + " |",
        "|---|" + "---|" * len(titles),
        *(
            "| "
            + " | ".join([ROW_TITLES.get(row) or plain(row), *(_cell(record, row) for record in records)])
            + " |"
            for row in rows
        ),
        "",
        *(f"{record.protocol}: {_note(record.note)}.  " for record in records),
    ]


def _note(text: str) -> str:
    """Return the origin of the test images; of a path, only its last part."""
    before, separator, path = text.partition("tested on ")
    is_path = separator and not before and "/" in path
    return f"tested on {plain(Path(path).name)}" if is_path else plain(text)[1:-1]


def _cell(record: EvaluationRecord, row: str) -> str:
    if row not in record.percent:
        return ""
    low, high = record.interval.get(row, (math.nan, math.nan))
    return f"{record.percent[row]:.1f}" + (f" ({low:.1f}–{high:.1f})" if low <= high else "")


def _machine(config: Config, provenance: dict[str, Any]) -> str:
    device = config.train.device or "cpu"
    return str(provenance["hardware"].get("cpu")) if device == "cpu" else device


def _channels(spec: EncoderSpec) -> str:
    count = len(spec.mean)
    return {1: "gray,", 3: "RGB,"}.get(count, f"{count} channels,")


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:.4f}" for value in values) + ")"


def _millions(encoder: Encoder) -> str:
    return f"{sum(p.numel() for p in encoder.backbone.parameters()) / 1e6:.2f}"
