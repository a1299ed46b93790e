"""At which size should an encoder read whole images? kNN and 10-label probe of one encoder at several sizes.

    python -m benchmarks.eval_size [DATA[=TEST] ...] [--steps 400] [--seeds 0,1] [--keep FOLDER]

For each data set (`cifar10-mini` by default; a folder, and after `=` its test images) and seed, a run of the
default recipe is trained; then its encoder and the untrained one read the test images at multiples of the
size of the views, and at the size at which images are stored. Reported are accuracies by size; for the
encoder at the size of its views, the gain over the stored size on the same images with its paired 95%
interval. With `--keep`, runs are kept in a folder and taken from there. The last line printed is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import frossl
from frossl import engine
from frossl.data import open_dataset
from frossl.evaluation import EvalSplit, Score, extract, labelled_split
from frossl.evaluation.difference import Difference
from frossl.evaluation.knn import knn_accuracy
from frossl.evaluation.probe import few_label_accuracy
from frossl.networks import Encoder
from frossl.runs import RunFolder

SHARES = (0.8, 1.0, 1.2, 1.4)
"""Sizes to read at, as multiples of the size of the views; beside them, the stored size and one more."""


def sizes_of(run: frossl.Run) -> list[int]:
    """Return the sizes to read at, in pixels, multiples of 4."""
    views, stored = max(spec.size for spec in run.config.views), run.config.data.size
    assert stored is not None
    multiples = [share * views for share in SHARES]
    between = (multiples[-1] + stored) / 2
    more = between if stored - multiples[-1] > 8 else 1.25 * stored
    return sorted({round(size / 4) * 4 for size in (*multiples, more)} | {stored})


def scores_at(encoder: Encoder, split: EvalSplit, size: int) -> dict[str, Score]:
    """Return the accuracies of an encoder that reads images at a size."""
    mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()
    reader = Encoder(encoder.backbone, size=size, mean=mean, std=std).ready_on("cpu")
    features = (*extract(reader, split.train), *extract(reader, split.test))
    per_class = min(10, split.smallest_class)
    return {"knn": knn_accuracy(*features, k=20), "probe": few_label_accuracy(*features, per_class=per_class)}


def measure(data: str, test: str | None, seed: int, steps: int, place: Path) -> dict[str, Any]:
    """Train a run, or take it from its folder, and return its accuracies by size."""
    out = place / f"{Path(data).name}-{seed}"
    if (out / "status.json").is_file() and RunFolder(out).closed:
        run = frossl.Run(out)
    else:
        run = frossl.pretrain(
            data, out=out, seed=seed, quiet=True, overwrite=True, settings={"train.steps": steps}
        )
    trained, config = frossl.load_encoder(out), run.config
    opened = open_dataset(config.data.source, size=config.data.size, test=test)
    split, views = labelled_split(opened), max(spec.size for spec in config.views)
    found: dict[str, Any] = {"views": views, "stored": config.data.size, "steps": run.status.step}
    scores = {}
    for row, encoder in {
        "trained": trained,
        "untrained": trained.with_backbone(engine.initial_backbone(config)),
    }.items():
        scores[row] = {size: scores_at(encoder, split, size) for size in sizes_of(run)}
        found[row] = {
            protocol: {size: round(by[protocol].percent, 2) for size, by in scores[row].items()}
            for protocol in ("knn", "probe")
        }
    gain = Difference.between(scores["trained"][views]["knn"], scores["trained"][opened.size]["knn"])
    found["gain"] = {"points": round(gain.points, 2), "interval": [round(x, 2) for x in gain.interval]}
    return found


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="*", default=["cifar10-mini"])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for one in given.data:
            data, _, test = one.partition("=")
            for seed in map(int, given.seeds.split(",")):
                result = measure(data, test or None, seed, given.steps, given.keep or Path(temporary))
                found.setdefault(Path(data).name, {})[str(seed)] = result
                print(data, f"seed {seed}", json.dumps(result), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
