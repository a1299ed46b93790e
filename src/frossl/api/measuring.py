"""Is it any good? A finished run by the usual protocols, beside pixels, the untrained network and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

import frossl.engine as engine
from frossl.api.shared import check_same, check_weights, console_of, data_of, opened
from frossl.artifacts import load_encoder
from frossl.config import Config, Data
from frossl.data import Dataset
from frossl.diagnostics import effective_rank, eigenvalues, rankme
from frossl.errors import InputError, unknown
from frossl.evaluation import (
    Labelled,
    Schooling,
    Score,
    Split,
    bag_of_features,
    extract,
    few_label_accuracy,
    finetune_accuracy,
    knn_accuracy,
    labelled_split,
    linear_probe,
    logistic_accuracy,
    pixels,
    with_test,
)
from frossl.live import Counting
from frossl.networks import Encoder, build_backbone, public_encoder
from frossl.runs import RunFolder

K = 20
"""Neighbours that vote, where nobody says how many."""
MANY = 200
"""Neighbours of the second protocol, where there are as many."""
FEW = (1, 5, 10, 50)
"""Labels of each class that few-label probes learn from."""
CROPS = 1000


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
    """By row: `pixels`, `untrained`, `trained`, and what it was measured against."""

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

    def to_json(self) -> dict[str, Any]:
        """Every figure with its interval and the name of its protocol."""
        top5 = {row: round(score.top5, 2) for row, score in self.scores.items() if score.top5 is not None}
        return {
            "protocol": self.protocol,
            "note": self.note,
            "images": max(score.images for score in self.scores.values()),
            "percent": self.percents(),
            "deviation": self.deviations(),
            "interval": self.intervals(),
            **({"top5": top5} if top5 else {}),
        }


class Subject:
    """A run with the images it is measured on and the encoders it is measured beside."""

    def __init__(
        self,
        run: str | Path,
        *,
        data: str | Path | None = None,
        root: str | Path | None = None,
        test: str | Path | None = None,
        against: Sequence[str] = (),
        step: int | None = None,
    ) -> None:
        self.folder = RunFolder.open(run)
        self.config = Config.read(self.folder.config_file)
        device = self.config.train.device or "cpu"
        self.device = device if device != "cuda" else engine.best_device()
        self.step = self.folder.read_status()["step"] if step is None else step
        check_weights(self.config, self.folder.read_json("provenance.json"))
        self.data = self._dataset(data, root, test)
        self.split: Split = labelled_split(self.data)
        if test is not None:
            self.split = replace(self.split, note=f"tested on {test}")
        trained = load_encoder(run) if step is None else encoder_at(self.config, self.folder, step)
        self.encoders: dict[str, Encoder] = {
            "untrained": trained.with_backbone(_plain(self.config, engine.build_method(self.config).encoder)),
            "trained": trained,
            **{name: self._other(name) for name in against},
        }
        for encoder in self.encoders.values():
            encoder.to(self.device).eval()

    def _dataset(self, data: str | Path | None, root: str | Path | None, test: str | Path | None) -> Dataset:
        console = console_of(quiet=True)
        if data is None and root is not None:
            raise InputError("root is the folder of other data; give its name, too")
        if data is None:
            dataset = opened(self.config, console)
            check_same(self.config, self.folder, dataset)
        else:
            dataset = self._opened(data, root)
        return dataset if test is None else with_test(dataset, self._opened(test, None))

    def _opened(self, data: str | Path, root: str | Path | None) -> Dataset:
        config = replace(self.config, data=data_of(Data(size=self.config.data.size), data, root=root))
        dataset = opened(config, console_of(quiet=True))
        channels = dataset.train.source.channels
        if channels != self.config.network.channels:
            raise InputError(
                f"{data} has images of {channels} channels, and the encoder takes "
                f"{self.config.network.channels}; give images of the kind it was trained on"
            )
        return dataset

    def _other(self, name: str) -> Encoder:
        channels = self.config.network.channels or 3
        if (Path(name) / "config.toml").is_file():
            other = load_encoder(name)
            if len(other.mean) != channels:
                raise InputError(f"{name} takes images of {len(other.mean)} channels, these have {channels}")
            return other
        architecture, given, file = name.partition("=")
        return public_encoder(architecture, weights=file if given else None, channels=channels)

    def keep(self, comparison: Comparison) -> Comparison:
        """Write the figures into the run folder."""
        record = {"step": self.step, "data": self.data.name, **comparison.to_json()}
        self.folder.evaluation.append(record)
        return comparison


def _plain(config: Config, encoder: torch.nn.Module) -> torch.nn.Module:
    """The backbone that a method exports, as a network of its own: a teacher's is made not to learn."""
    largest = max(spec.size for spec in config.views)
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


Rows = tuple[Tensor, Tensor, Tensor, Tensor]
"""Features and labels to learn from, and to be tested on."""


def measure(
    run: str | Path,
    protocols: Iterable[str] | None = None,
    *,
    crops: int | None = None,
    **where: Unpack[Where],
) -> dict[str, Comparison]:
    """By protocols on kept features: `knn` (k 20, or all where there are fewer), `knn200` and the like,
    `probe` (all labels), `probe10` and the like (so many labels of each class). The first two, if none are
    given.

    crops: the features of an image are the mean over so many random crops, cut as the run's largest views
    are, in place of the whole image.
    """
    if crops is not None and not 1 <= crops <= CROPS:
        raise InputError(f"crops = {crops}; give 1 to {CROPS} crops of each image")
    subject = Subject(run, **where)
    if protocols is None:
        protocols = ["knn", f"knn{MANY}"] if len(subject.split.bank.ids) >= MANY else ["knn"]
    return _measured(subject, protocols, crops)


def _measured(subject: Subject, protocols: Iterable[str], crops: int | None = None) -> dict[str, Comparison]:
    if crops is not None and set(subject.encoders) - {"untrained", "trained"}:
        raise InputError("crops are cut for this run's networks; measure others without --crops")
    split, largest = subject.split, max(subject.config.views, key=lambda spec: spec.size)
    named = {name: _protocol(name, split) for name in protocols}

    def features(encoder: Encoder, images: Labelled) -> tuple[Tensor, Tensor]:
        if crops is None:
            return extract(encoder, images)
        return bag_of_features(encoder, images, largest, crops=crops)

    rows: dict[str, Rows] = {"pixels": (*pixels(split.bank), *pixels(split.test))}
    for row, encoder in subject.encoders.items():
        rows[row] = (*features(encoder, split.bank), *features(encoder, split.test))
    comparisons = {}
    for name, (title, accuracy) in named.items():
        title += f", bag of {crops} crops" if crops else ""
        scores = {row: accuracy(*four) for row, four in rows.items()}
        comparisons[name] = subject.keep(Comparison(title, split.note, scores))
    return comparisons


def _protocol(name: str, split: Split) -> tuple[str, Callable[..., Score]]:
    """Its title, and the function of four tensors."""
    kind = name.rstrip("0123456789")
    number = name.removeprefix(kind)
    if kind == "knn":
        k = int(number) if number else min(K, len(split.bank.ids))
        if not 1 <= k <= len(split.bank.ids):
            raise InputError(f"k = {k} with {len(split.bank.ids)} labelled images; give fewer neighbours")
        return f"kNN, k {k}", partial(knn_accuracy, k=k)
    if kind == "probe" and number:
        if not 1 <= int(number) <= split.smallest_class:
            raise InputError(
                f"{number} labels a class cannot be drawn: the smallest class has {split.smallest_class}"
                "; give fewer"
            )
        return f"probe, {number} labels a class", partial(few_label_accuracy, per_class=int(number))
    if name != "probe":
        raise unknown("protocol", name, ["knn", "knn200", "probe", "probe10"])
    return "probe, all labels", logistic_accuracy


def knn(
    run: str | Path, *, k: int | None = None, crops: int | None = None, **where: Unpack[Where]
) -> Comparison:
    """Accuracy of k nearest neighbours by cosine, beside raw pixels and the untrained network.

    k is 20 if not given, or all labelled images if there are fewer. crops: see `measure`.
    """
    name = "knn" if k is None else f"knn{max(k, 0)}"
    return measure(run, [name], crops=crops, **where)[name]


def probe(
    run: str | Path, *, labels: Sequence[int] | None = None, **where: Unpack[Where]
) -> dict[str, Comparison]:
    """Logistic regression on kept features: `probe` with all labels, the regularization chosen on a fifth of
    them, and `probe1`, `probe5` and so on with few labels of each class, drawn ten times.

    labels: how many of each class; 1, 5, 10 and 50 if not given, as far as the smallest class has them.
    """
    subject = Subject(run, **where)
    if labels is None:
        labels = [few for few in FEW if few <= subject.split.smallest_class]
    return _measured(subject, [*(f"probe{max(few, 0)}" for few in labels), "probe"])


def linear(
    run: str | Path, *, epochs: int = 100, lr: float = 0.3, quiet: bool = False, **where: Unpack[Where]
) -> Comparison:
    """The paper's linear probe on the trained encoder (and what it is measured against): crops and flips,
    SGD, the rate a tenth after 60% and 80% of the epochs. Minutes, where `probe` takes seconds."""
    _check_rate(lr)
    subject = Subject(run, **where)
    protocol = f"linear probe as in the paper, {epochs} epochs, rate {lr:g}"
    return _schooled(subject, protocol, epochs, partial(linear_probe, lr=lr), skip="untrained", quiet=quiet)


def finetune(
    run: str | Path,
    *,
    labels: float = 1.0,
    epochs: int = 30,
    lr: float = 1e-3,
    layer_decay: float = 1.0,
    mixup: float = 0.0,
    seed: int = 0,
    quiet: bool = False,
    **where: Unpack[Where],
) -> Comparison:
    """Train all layers with a share of the labels, from the run's weights and from the untrained ones: what
    did the run save? The run's own encoder stays as it is.

    labels: 0.01 is 1% of every class. layer_decay: each layer moves at this share of the rate of the next.
    mixup: strength, 0 for none.
    """
    _check_rate(lr)
    subject = Subject(run, **where)
    options = f"{labels:.3g} of the labels, {epochs} epochs, rate {lr:g}"
    options += f", layer decay {layer_decay:g}" if layer_decay < 1 else ""
    options += f", mixup {mixup:g}" if mixup else ""
    tune = partial(finetune_accuracy, labels=labels, lr=lr, layer_decay=layer_decay, mixup=mixup)
    return _schooled(subject, f"fine-tuned, {options}", epochs, tune, seed=seed, quiet=quiet)


def _check_rate(lr: float) -> None:
    if not 0 < lr < math.inf:
        raise InputError(f"lr = {lr:g}; give a positive rate")


def _schooled(
    subject: Subject,
    protocol: str,
    epochs: int,
    accuracy: Callable[[Encoder, Split, Schooling], Score],
    *,
    skip: str = "",
    seed: int = 0,
    quiet: bool = False,
) -> Comparison:
    if epochs < 1:
        raise InputError(f"epochs = {epochs}; give at least 1")
    if seed < 0:
        raise InputError(f"seed = {seed}; give 0 or more")
    scores = {}
    for row, encoder in subject.encoders.items():
        if row == skip:
            continue
        with Counting(console_of(quiet), row) as counting:
            schooling = Schooling(
                epochs,
                seed=seed,
                kernel=engine.best_view_kernel(subject.device),
                max_steps=engine.max_steps(),
                progress=counting.update,
            )
            scores[row] = accuracy(encoder, subject.split, schooling)
    return subject.keep(Comparison(protocol, subject.split.note, scores))


@dataclass(frozen=True)
class Saved:
    """A checkpoint, measured."""

    step: int
    rank: float
    """Effective rank of the features of unaugmented images."""
    rankme: float
    knn: Score
    """Of no image, where there are no labels."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, oldest first, and which is best: by labels, and without."""

    saved: tuple[Saved, ...]
    labelled: bool

    @property
    def best_by_labels(self) -> Saved | None:
        return max(self.saved, key=lambda s: s.knn.percent) if self.labelled else None

    @property
    def best_without(self) -> Saved:
        return max(self.saved, key=lambda s: s.rankme)

    @property
    def separated(self) -> bool:
        """Is the best by labels better than the newest by more than twice the error of their difference?"""
        best, newest = self.best_by_labels, self.saved[-1]
        if best is None:
            return False
        error = math.hypot(best.knn.deviation, newest.knn.deviation)
        return best.knn.percent - newest.knn.percent > 2 * error


LOOKED_AT = 2000


def checkpoints(run: str | Path, *, images: int = LOOKED_AT) -> Checkpoints:
    """Which checkpoint is best? kNN (k 20) of each, where there are labels, and RankMe of its features, which
    needs none.

    images: how many are looked at, besides those that are tested on.
    """
    folder = RunFolder.open(run)
    config = Config.read(folder.config_file)
    dataset = opened(config, console_of(quiet=True))
    check_same(config, folder, dataset)
    source = dataset.train.source
    steps = engine.checkpoint_steps(folder)
    if not steps:
        raise InputError(f"{run} holds no checkpoint; `frossl resume` goes on until there is one")
    split = None if dataset.train.labels is None else labelled_split(dataset)
    ids = torch.arange(len(source))
    bank = split.bank if split is not None else Labelled(source, ids, torch.full((len(ids),), -1))
    bank = bank.at_most(images)
    saved = []
    for step in steps:
        encoder = encoder_at(config, folder, step).to(engine.best_device()).eval()
        features, labels = extract(encoder, bank)
        score = Score(0.0, 0.0, 0)
        if split is not None:
            test = extract(encoder, split.test.at_most(images))
            score = knn_accuracy(features, labels, *test, k=min(K, len(features)))
        rank = effective_rank(eigenvalues(features)).item()
        saved.append(Saved(step, rank, rankme(features).item(), score))
    return Checkpoints(tuple(saved), labelled=split is not None)
