"""The model card: what an encoder is, how good it is, how it is used, in Markdown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from frossl.artifacts.design import Design
from frossl.config import Config
from frossl.networks import Encoder
from frossl.runs import RunFolder, outcome_of
from frossl.runs.outcome import NOT_MEASURED

ROWS = {
    "pixels": "raw pixels",
    "colors": "color statistics",
    "untrained": "untrained network",
    "trained": "this encoder",
}


def model_card(encoder: Encoder, design: Design, folder: RunFolder, format: str = "safetensors") -> str:
    """format: of the file that lies beside the card."""
    config, known = Config.read(folder.config_file), folder.provenance()
    status = folder.read_status()
    name = plain(folder.path.absolute().name)
    seconds = max((record["seconds"] for record in folder.metrics), default=0.0)
    began = "weights from a file" if config.network.weights else "random weights"
    facts = {
        "network": f"{design.in_words()}; {_millions(encoder)} M parameters, {encoder.num_features} features",
        "method": f"{config.objective.method}, {sum(spec.count for spec in config.views)} views of "
        f"{', '.join(dict.fromkeys(f'{spec.size} px' for spec in config.views))}",
        "images": f"{known['images']:,} of {plain(Path(config.data.source).name)}, at {design.size} px",
        "training": f"{status['step']:,} steps of {config.train.batch_size} images from {began}, "
        f"{seconds / 60:.1f} minutes on {_machine(config, known)}, seed {config.train.seed}",
        "made with": ", ".join(
            f"{name} {known['versions'].get(name)}" for name in ("frossl", "torch", "timm")
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
            *(f"| {what} | {said} |" for what, said in facts.items()),
            "",
            "## How good it is",
            "",
            *_verdict(folder),
            *_figures(folder),
            "",
            "## How images come in",
            "",
            f"{design.preprocess['resize'].replace('`size`', f'{design.size} px')}; {_channels(design)} "
            f"{design.preprocess['scale']}; minus {_numbers(design.mean)}, "
            f"divided by {_numbers(design.std)}. "
            "`preprocess.json` has the same for programs.",
            "",
            "## Use",
            "",
            *_use(design, format),
            "## Limits",
            "",
            "It knows the images it was trained on; whether its features serve for others, measure. The "
            "rights to the weights are those of who trained it; frossl claims none.",
            "",
        ]
    )


def _use(design: Design, format: str) -> list[str]:
    """How to load it and what to give it, in Python."""
    size, name = design.size, design.network.backbone.partition(".")[0]
    file = {"hf": "model.safetensors"}.get(format, "encoder.safetensors")
    own = [
        "With frossl, which prepares images itself:",
        "",
        "```python",
        "import frossl",
        "",
        f'encoder = frossl.load_encoder("{file}")',
        "features = encoder(images)  # (N, C, H, W), uint8 -> (N, F)",
        "```",
        "",
    ]
    prepared, whole = (
        "for images that are prepared",
        f"for uint8 images (N, C, {size}, {size}); the rest is inside",
    )
    others = {
        "safetensors": (f"With timm alone, {prepared}:", timm_block(design, file)),
        "hf": (
            f"With timm alone, here or by the name of the folder, {prepared}:",
            ["import timm", "", 'model = timm.create_model("local-dir:.", pretrained=True).eval()'],
        ),
        "torchvision": (
            f"With torchvision, {prepared}:",
            [
                "from safetensors.torch import load_file",
                "from torch import nn",
                f"from torchvision.models import {name}",
                "",
                f"model = {name}()",
                'model.load_state_dict(load_file("torchvision.safetensors"))',
                "model.fc = nn.Identity()  # the classifier in the file is zeros; put your own here",
                "model.eval()",
            ],
        ),
        "onnx": (
            f"With onnxruntime alone, {whole}:",
            [
                "import onnxruntime",
                "",
                'session = onnxruntime.InferenceSession("encoder.onnx")',
                '(features,) = session.run(None, {"images": images})  # a NumPy array',
            ],
        ),
        "torch-export": (
            f"With torch alone, {whole}:",
            [
                "import torch",
                "",
                'model = torch.export.load("encoder.pt2").module()',
                "features = model(images)",
            ],
        ),
    }
    words, lines = others[format]
    return [*(own if format in ("safetensors", "hf") else []), words, "", "```python", *lines, "```", ""]


def timm_block(design: Design, file: str) -> list[str]:
    """Python that makes the trained backbone by plain timm."""
    create, *changes = design.timm_lines()
    if not changes:
        whole = create.removesuffix(")") + f', checkpoint_path="{file}")'
        return ["import timm", "", whole, "model.eval()"]
    return [
        "import timm",
        "from safetensors.torch import load_file",
        "from torch import nn",
        "",
        create,
        *changes,
        f'model.load_state_dict(load_file("{file}"))',
        "model.eval()",
    ]


def plain(text: str) -> str:
    """A name as a span of code that Markdown and HTML leave alone."""
    visible = "".join(c if c.isprintable() and c not in "`|" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return f"`{visible.strip() or '?'}`"


def _verdict(folder: RunFolder) -> list[str]:
    """What came of the run; why accuracy was not measured is left out, as it may name a path."""
    found, lines = outcome_of(folder), []
    if found.get("kind") not in (None, "warming up"):
        lines = [f"**{found['kind']}**: {found.get('reason', '')}."]
        lines += [f"What to try: {found['advice']}."] if found.get("advice") else []
    if accuracy := found.get("accuracy"):
        lines += [f"{NOT_MEASURED.capitalize() if accuracy.startswith(NOT_MEASURED) else accuracy}."]
    return [text for line in lines for text in (line, "")]


def _figures(folder: RunFolder) -> list[str]:
    """The last figures of each protocol on each data set, with their intervals."""
    step = folder.read_status()["step"]  # other checkpoints are other encoders
    records = [record for record in folder.evaluation if record["step"] == step]
    last = {(record["protocol"], record.get("data", "")): record for record in records}
    if not last:
        return ["Where there are labels, `frossl knn` and `frossl probe` measure it."]
    rows = dict.fromkeys(row for record in last.values() for row in record["percent"])
    titles = [f"{protocol}, {plain(Path(data).name)}" for protocol, data in last]
    return [
        "Accuracy in percent, with 95% intervals.",
        "",
        "| | " + " | ".join(titles) + " |",
        "|---|" + "---|" * len(titles),
        *(
            "| " + " | ".join([ROWS.get(row) or plain(row), *(_figure(r, row) for r in last.values())]) + " |"
            for row in rows
        ),
        "",
        *(f"{protocol}: {_note(record.get('note', ''))}.  " for (protocol, _), record in last.items()),
    ]


def _note(text: str) -> str:
    """Where test images come from; of a path that was given, its last part."""
    said, given, path = text.partition("tested on ")
    return f"tested on {plain(Path(path).name)}" if given and not said and "/" in path else plain(text)[1:-1]


def _figure(record: dict[str, Any], row: str) -> str:
    if row not in record["percent"]:
        return ""
    low, high = record.get("interval", {}).get(row, (math.nan, math.nan))
    return f"{record['percent'][row]:.1f}" + (f" ({low:.1f}–{high:.1f})" if low <= high else "")


def _machine(config: Config, known: dict[str, Any]) -> str:
    device = config.train.device or "cpu"
    return str(known["hardware"].get("cpu")) if device == "cpu" else device


def _channels(design: Design) -> str:
    count = len(design.mean)
    return {1: "gray,", 3: "RGB,"}.get(count, f"{count} channels,")


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:.4f}" for value in values) + ")"


def _millions(encoder: Encoder) -> str:
    return f"{sum(p.numel() for p in encoder.backbone.parameters()) / 1e6:.2f}"
