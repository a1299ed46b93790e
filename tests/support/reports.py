"""A run folder with everything a report shows, written by hand: what is known is what must be seen."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from frossl.config import Config, Objective, Train
from frossl.reporting import Sample
from frossl.runs import RunFolder

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "two\nlines",
    "\u202egnp.exe",
    "byte \udcff.png",
    "</script><!--<script>",
    "a & b \u2028 c",
)
STEPS, BATCH, IMAGES = 400, 50, 1000
PARTS = ("data", "views", "forward", "loss", "backward", "update", "diagnostics")


def write_run(path: Path, *, method: str = "frossl", seed: int = 0, source: str = "photos") -> Path:
    """400 steps of 50 images out of 1,000: 20 epochs, 3 minutes and 20 seconds."""
    random = np.random.default_rng(seed)
    folder = RunFolder.create(path)
    config = Config(train=Train(batch_size=BATCH, epochs=20, seed=seed), objective=Objective(method=method))
    folder.write_text("config.toml", replace(config, data=replace(config.data, source=source)).to_toml())
    folder.write_json(
        "provenance.json",
        {
            "command": f"frossl pretrain {source!r} --out {path}",
            "started": "2026-01-02T03:04:05+00:00",
            "versions": {"python": "3.11", "frossl": "0.1"},
            "hardware": {"cpu": "a CPU", "cores": 2},
            "seed": seed,
            "images": IMAGES,
            "index_digest": "0123abcd",
        },
    )
    for step in range(10, STEPS + 1, 10):
        invariance, variance = 3 / math.sqrt(step), -math.log(step)
        record = {"step": step, "epoch": step // 20, "lr": 0.01 * math.cos(step / 300)}
        record |= {"loss": invariance + variance, "invariance": invariance, "variance": variance}
        record |= {"effective_rank": 30.0, "seconds": step / 2, "images_per_second": 100.0 + step % 7}
        folder.metrics.append({**record, "memory_gb": 1.5} | {f"ms_{part}": 10.0 for part in PARTS})
    for step in sorted({round(10 ** (i / 10)) for i in range(27)}):
        peak = 1e-3 + math.exp(-(math.log(step / 60) ** 2))
        look = {"step": step, "seconds": step / 2, "z_rank": 10 + 8 * math.log(step), "directions": 49}
        look |= {"z_rankme": 60.0, "features_rank": 5 + step / 50, "features_rankme": 20.0, "alignment": 0.5}
        look |= {
            f"{kind}_eigenvalues": np.geomspace(40 * peak, peak, 20).tolist() for kind in ("z", "features")
        }
        if step > 10:
            look |= {"knn": 30 + step / 40 + random.normal(), "probe": 25 + step / 30, "tested": 500}
        folder.diagnostics.append(look)
    for protocol, gain in (("kNN, k 20", 0.0), ("probe, all labels", 4.0)):
        percent = {"pixels": 30.0, "untrained": 25.0, "trained": 45.0 + gain, "resnet18": 60.0}
        folder.evaluation.append(
            {
                "step": STEPS,
                "data": "photos",
                "protocol": protocol,
                "note": "tested on a fifth",
                "images": 1000,
                "percent": percent,
                "interval": {row: [value - 3, value + 3] for row, value in percent.items()},
            }
        )
    verdict = {"kind": "learning", "reason": "the loss falls", "advice": "go on"}
    folder.write_status("finished", step=STEPS, total=STEPS, verdict=verdict)
    sheet = random.integers(0, 256, (120, 200, 3), dtype=np.uint8)
    Image.fromarray(sheet).save(folder.views)
    return path


def tile_colors(count: int) -> np.ndarray:
    """A color for each thumbnail, far from that of its neighbours in the sheet."""
    return np.random.default_rng(5).integers(0, 9, (count, 3)) * 30 + 8


def sample(
    count: int, *, classes=("cat", "dog", "ship"), labelled: bool = True, names=None, side: int = 16
) -> Sample:
    """Thumbnails of one known color each; features and places that go by class."""
    random = np.random.default_rng(1)
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    tiles = np.zeros((rows * columns, side, side, 3), np.uint8)
    tiles[:count] = tile_colors(count)[:, None, None]
    sheet = tiles.reshape(rows, columns, side, side, 3).swapaxes(1, 2).reshape(rows * side, columns * side, 3)
    group = np.arange(count) % max(1, len(classes))
    centers = random.normal(size=(max(1, len(classes)), 12))
    angle = 2 * np.pi * group / max(1, len(classes))
    return Sample(
        ids=np.arange(count),
        names=np.array([*(names or ()), *(f"photos/{i}.jpg" for i in range(count))][:count]),
        sheet=np.frombuffer(jpeg(sheet), np.uint8),
        columns=columns,
        side=side,
        features=(centers[group] + random.normal(size=(count, 12))).astype(np.float16),
        map=(np.stack([np.cos(angle), np.sin(angle)], 1) * 3 + random.normal(size=(count, 2))).astype(
            np.float32
        ),
        labels=group if labelled else np.full(count, -1),
        classes=np.array(classes, dtype=np.str_),
        clusters=group,
        note=f"t-SNE of {count:,} images",
    )


def jpeg(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()
