"""The paper's figure of eigenvalues: five methods, one at a time, then `frossl spectrum`.

    python -m benchmarks.spectrum IMAGES [--out runs/spectrum] [--methods frossl,ivne]

IMAGES: Imagenette at 96 pixels. Crops of 48, a quarter-width ResNet-18 with timm's own stem, SGD at a
constant rate of 0.01, batch 256, 2,000 steps: about 16 minutes a method on two cores. What was stopped goes
on where it stood. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import frossl
from frossl.augment import view_set
from frossl.config import Config, Data, Network, Objective, Optim, Train
from frossl.data import open_dataset

METHODS = ("frossl", "ivne", "vicreg", "barlow", "corinfomax")
STEPS, BATCH = 2000, 256


def config(method: str, images: int) -> Config:
    D = 256 if method == "corinfomax" else 1024
    options = {"invariance_weight": 1.4} if method == "frossl" else {}
    return Config(
        data=Data(size=96),
        network=Network(
            "resnet18", width=0.25, stem="native", projector_hidden=1024, projector_out=D, projector_layers=3
        ),
        objective=Objective(method, options),
        optim=Optim("sgd", base_lr=0.01, weight_decay=1e-6, schedule="wsd", warmup=0.0, decay=0.0),
        train=Train(epochs=-(-STEPS // (images // BATCH)), batch_size=BATCH, checkpoint_minutes=3.0),
        views=view_set("symmetric", size=48, views=2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images")
    parser.add_argument("--out", type=Path, default=Path("runs/spectrum"))
    parser.add_argument("--methods", default=",".join(METHODS))
    given = parser.parse_args()
    count = len(open_dataset(given.images, size=96).train.source)
    runs = []
    for method in given.methods.split(","):
        folder = given.out / method
        if (folder / "config.toml").is_file():
            run = frossl.resume(folder)
        else:
            run = frossl.pretrain(given.images, out=folder, config=config(method, count))
        if run.interrupted:
            raise KeyboardInterrupt
        runs.append(folder)
    found = {}
    for name, relative in (("spectrum", False), ("spectrum-shares", True)):
        drawn = frossl.spectrum(runs, out=given.out / f"{name}.png", relative=relative)
        found[name] = [one.to_json() for one in drawn]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
