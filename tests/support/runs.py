"""Small runs: their configurations, how they are started, and what they left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import frossl
from frossl.config import Config, Data, Diagnostics, Network, Objective, Optim, Train, ViewSpec
from tests.support.cli import FROSSL

USUAL = {"flip": 0.5, "jitter": 0.8, "gray": 0.2, "blur": 0.5}
"""Usual probabilities of the operations that make views."""
SMALL = Config(
    data=Data("cifar10-mini"),
    network=Network(
        "resnet18", width=0.125, stages=2, projector_hidden=32, projector_out=16, projector_layers=2
    ),
    optim=Optim(base_lr=0.01),
    train=Train(epochs=1, batch_size=512, log_every=2, checkpoint_every=4),
    views=(ViewSpec(size=16, count=2, **USUAL),),
)

THREE_EPOCHS = replace(
    SMALL,
    train=replace(SMALL.train, batch_size=32, epochs=3),
    diagnostics=Diagnostics(every=4, share=1.0),
)
"""For data of a few dozen images, with diagnostics."""

SMALL_OPTIONS: dict[str, dict[str, Any]] = {
    "moco": {"queue_size": 64},
    "swav": {"prototypes": 20, "queue_size": 48, "queue_from": 0.0},
    "dino": {"outputs": 20},
    "byol": {"predictor_hidden": 16},
    "matrixssl": {"predictor_hidden": 16},
    "simsiam": {"predictor_hidden": 16},
    "lejepa": {"slices": 16},
    "visreg": {"slices": 16},
}
"""Options that make a method small enough for a test."""

PATIENCE = 120
"""Seconds until a test gives up on a process."""


def method_config(name: str, **values: Any) -> Config:
    """Return `SMALL` with another method and 60 steps; `values` are settings of `train`."""
    settings = {"batch_size": 82, "log_every": 1, "checkpoint_every": 7, **values}
    method = Objective(name, SMALL_OPTIONS.get(name, {}))
    return replace(SMALL, objective=method, train=replace(SMALL.train, **settings))


def train(out: Path, *, config: Config = SMALL, data: str = "cifar10-mini", **options: Any) -> frossl.Run:
    return frossl.pretrain(data, out=out, config=config, quiet=True, **options)


def weights(run: Path | frossl.Run) -> dict[str, torch.Tensor]:
    """Return the state of the method in the newest checkpoint."""
    path = run.path if isinstance(run, frossl.Run) else run
    newest = sorted((path / "checkpoints").iterdir())[-1]
    return torch.load(newest, weights_only=True)["method"]


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


def start(given: Config, out: Path, *options: str, **env: str) -> subprocess.Popen[str]:
    """Start `frossl pretrain` in a process of its own."""
    file = out.with_suffix(".toml")
    file.write_text(given.to_toml())
    command = ["pretrain", "cifar10-mini", "--config", str(file), "--out", str(out), "--quiet", *options]
    return subprocess.Popen(
        [*FROSSL, *command],
        env={**os.environ, **env},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Wait until something happened while a process runs."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.001)


def steps_of(run: Path) -> int:
    """Count the steps that a run has recorded."""
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.is_file() else 0


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_status(run: Path) -> dict[str, Any]:
    return json.loads((run / "status.json").read_text())
