"""A run with what it is measured on, and beside; and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import torch

import frossl.engine as engine
from frossl.api.shared import check_same, check_weights, console_of, data_of, opened
from frossl.artifacts import load_encoder, read_encoder
from frossl.config import Config, Data, Device
from frossl.data import Dataset, with_test
from frossl.errors import InputError
from frossl.evaluation import (
    Difference,
    Score,
    Split,
    labelled_split,
)
from frossl.networks import Encoder, build_backbone, public_encoder
from frossl.runs import RunFolder
from frossl.types import own_random_numbers

report = logging.getLogger("frossl")


class Where(TypedDict, total=False):
    """What a run is measured on, and beside.

    data: other images than it was trained on (transfer), with the `root` of a data set that has a name. test:
    images to be tested on, in place of their test part. against: other encoders: a run folder, a name of timm
    (with the weights that timm fetches), or NAME=FILE with local weights. step: a checkpoint of the run.
    """

    data: str | Path | None
    root: str | Path | None
    test: str | Path | None
    against: Sequence[str]
    step: int | None


@dataclass(frozen=True)
class Comparison:
    """One protocol on several rows: the images themselves, the network before training, after, and others."""

    protocol: str
    note: str
    """Where the test images come from."""
    scores: Mapping[str, Score]
    """By row: `pixels`, `colors`, `untrained`, `trained`, and what it was measured against."""

    @property
    def pixels(self) -> Score:
        return self.scores["pixels"]

    @property
    def untrained(self) -> Score:
        return self.scores["untrained"]

    @property
    def trained(self) -> Score:
        return self.scores["trained"]

    def percents(self) -> dict[str, float]:
        return {row: round(score.percent, 2) for row, score in self.scores.items()}

    def deviations(self) -> dict[str, float]:
        return {row: round(score.deviation, 2) for row, score in self.scores.items()}

    def intervals(self) -> dict[str, list[float]]:
        """95%, low and high."""
        return {row: [round(x, 2) for x in score.interval] for row, score in self.scores.items()}

    def differences(self) -> dict[str, Difference]:
        """How far the trained network is above each other row."""
        others = {row: score for row, score in self.scores.items() if row != "trained"}
        return {row: Difference.between(self.trained, score) for row, score in others.items()}

    def to_json(self) -> dict[str, Any]:
        """Every figure with its interval and the name of its protocol."""
        differences = self.differences()
        top5 = {row: round(score.top5, 2) for row, score in self.scores.items() if score.top5 is not None}
        return {
            "protocol": self.protocol,
            "note": self.note,
            "images": max(score.images for score in self.scores.values()),
            "percent": self.percents(),
            "deviation": self.deviations(),
            "interval": self.intervals(),
            "difference": {row: round(found.points, 2) for row, found in differences.items()},
            "difference_interval": {
                row: [round(x, 2) for x in found.interval] for row, found in differences.items()
            },
            **({"top5": top5} if top5 else {}),
        }


@dataclass(frozen=True)
class Subject:
    """A run with the images it is measured on and the encoders it is measured beside."""

    folder: RunFolder
    config: Config
    step: int
    name: str
    """Of the images."""
    split: Split
    encoders: Mapping[str, Encoder]
    """By row; on the device, in evaluation mode."""
    identity: str
    """The run's id when it was opened: another run may have taken its folder since."""

    @classmethod
    def of(
        cls,
        run: str | Path,
        *,
        data: str | Path | None = None,
        root: str | Path | None = None,
        test: str | Path | None = None,
        against: Sequence[str] = (),
        step: int | None = None,
    ) -> Subject:
        folder = RunFolder.open(run)
        config = Config.read(folder.config_file)
        check_weights(config, folder.provenance())
        dataset = _dataset(config, folder, data, root, test)
        split = labelled_split(dataset) if test is None else labelled_split(dataset, tested_on=str(test))
        identity = folder.identity()
        if step is None:
            trained, design = read_encoder(folder.path)
            step = folder.read_status()["step"] if design.step is None else design.step
        else:
            trained = encoder_at(config, folder, step)
        others = {name: _other(name, config.network.channels or 3) for name in against}
        encoders = encoders_of(config, trained, others)
        return cls(folder, config, step, dataset.name, split, encoders, identity)

    @property
    def device(self) -> Device:
        return measuring_device(self.config)

    def keep(self, comparison: Comparison) -> Comparison:
        """Write the figures into the run folder."""
        record = {"step": self.step, "data": self.name, "split": self.split.kind, **comparison.to_json()}
        try:
            self.folder.record_evaluation(record, identity=self.identity)
        except OSError as error:
            report.warning("%s cannot be written (%s): the figures are not kept", self.folder.path, error)
        return comparison


def measuring_device(config: Config) -> Device:
    """The run's, if it is here; else the best that is. All that is measured of a run is measured there."""
    device = config.train.device or "cpu"
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return device if here[device] else engine.best_device()


def encoders_of(
    config: Config, trained: Encoder, others: Mapping[str, Encoder] | None = None
) -> dict[str, Encoder]:
    """The rows of a comparison: the network before training, after, and others."""
    untrained = trained.with_backbone(_plain(config, engine.build_method(config).encoder))
    rows = {"untrained": untrained, "trained": trained, **(others or {})}
    return {row: encoder.ready_on(measuring_device(config)) for row, encoder in rows.items()}


def _dataset(
    config: Config,
    folder: RunFolder,
    data: str | Path | None,
    root: str | Path | None,
    test: str | Path | None,
) -> Dataset:
    if data is None and root is not None:
        raise InputError("root is the folder of other data; give its name, too")
    if data is None:
        dataset = opened(config, console_of(quiet=True))
        check_same(config, folder, dataset)
    else:
        dataset = _opened(config, data, root)
    return dataset if test is None else with_test(dataset, _opened(config, test, None))


def _opened(config: Config, data: str | Path, root: str | Path | None) -> Dataset:
    other = replace(config, data=data_of(Data(size=config.data.size), data, root=root))
    dataset = opened(other, console_of(quiet=True))
    channels = dataset.train.source.channels
    if channels != config.network.channels:
        raise InputError(
            f"{data} has images of {channels} channels, and the encoder takes "
            f"{config.network.channels}; give images of the kind it was trained on"
        )
    return dataset


def _other(name: str, channels: int) -> Encoder:
    if (Path(name) / "config.toml").is_file():
        other = load_encoder(name)
        if len(other.mean) != channels:
            raise InputError(f"{name} takes images of {len(other.mean)} channels, these have {channels}")
        return other
    architecture, given, file = name.partition("=")
    with own_random_numbers():  # weights are drawn first, and then replaced
        return public_encoder(architecture, weights=file if given else None, channels=channels)


def _plain(config: Config, encoder: torch.nn.Module) -> torch.nn.Module:
    """The backbone that a method exports, as a network of its own: a teacher's is made not to learn."""
    largest = max(spec.size for spec in config.views)
    with own_random_numbers():
        backbone = build_backbone(config.network, size=largest, pretrained=False)
    backbone.load_state_dict(encoder.state_dict())
    return backbone


def encoder_at(config: Config, folder: RunFolder, step: int) -> Encoder:
    """The encoder as a checkpoint has it; the run need not be finished."""
    backbone = _plain(config, engine.method_at(config, folder, step).encoder)
    if folder.encoder.is_file():
        return load_encoder(folder.path).with_backbone(backbone)
    dataset = opened(config, console_of(quiet=True))
    mean, std = dataset.statistics
    return Encoder(backbone, size=dataset.size, mean=mean, std=std)
