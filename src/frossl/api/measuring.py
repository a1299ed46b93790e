"""Is it any good? A finished run by the usual protocols, beside pixels, the untrained network and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from torch import Tensor

import frossl.engine as engine
from frossl.api.shared import console_of
from frossl.api.subject import Comparison, Subject, Where
from frossl.errors import InputError, unknown
from frossl.evaluation import (
    Labelled,
    Schooling,
    Score,
    Split,
    bag_of_features,
    colors,
    extract,
    few_label_accuracy,
    finetune_accuracy,
    knn_accuracy,
    linear_probe,
    logistic_accuracy,
    pixels,
)
from frossl.live import Counting
from frossl.networks import Encoder

K = 20
"""Neighbours that vote, where nobody says how many."""
MANY = 200
"""Neighbours of the second protocol, where there are as many."""
FEW = (1, 5, 10, 50)
"""Labels of each class that few-label probes learn from."""
CROPS = 1000
BRIEF = ", brief"
"""How the name of a protocol ends that was asked on some of the images only, at the end of a run."""


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
    subject = Subject.of(run, **where)
    if protocols is None:
        protocols = ["knn", f"knn{MANY}"] if len(subject.split.bank.ids) >= MANY else ["knn"]
    return measured(subject, protocols, crops)


def measured(
    subject: Subject, protocols: Iterable[str], crops: int | None = None, *, brief: bool = False
) -> dict[str, Comparison]:
    """brief: on some of the images only, which is another protocol."""
    if crops is not None and set(subject.encoders) - {"untrained", "trained"}:
        raise InputError("crops are cut for this run's networks; measure others without --crops")
    split, largest = subject.split, max(subject.config.views, key=lambda spec: spec.size)
    names = list(protocols)
    for name in names:
        _protocol(name, split.bank.labels)  # refused before any work

    def features(encoder: Encoder, images: Labelled) -> tuple[Tensor, Tensor]:
        if crops is None:
            return extract(encoder, images)
        return bag_of_features(encoder, images, largest, crops=crops)

    taken: dict[str, Callable[[Labelled], tuple[Tensor, Tensor]]] = {"pixels": pixels, "colors": colors}
    taken |= {row: partial(features, encoder) for row, encoder in subject.encoders.items()}
    comparisons, done, parts = {}, 0, len(taken) * (1 + len(names))
    with Counting(console_of(quiet=brief), "measuring") as counting:
        rows: dict[str, Rows] = {}
        for row, take in taken.items():
            rows[row] = (*take(split.bank), *take(split.test))
            counting.update(done := done + 1, parts)
        _, learned, _, _ = rows["pixels"]  # what could be read
        for name in names:
            title, accuracy = _protocol(name, learned)
            title += f", bag of {crops} crops" if crops else ""
            title += BRIEF if brief else ""
            scores: dict[str, Score] = {}
            for row, four in rows.items():
                scores[row] = accuracy(*four)
                counting.update(done := done + 1, parts)
            comparisons[name] = subject.keep(Comparison(title, split.note, scores))
    return comparisons


def _protocol(name: str, labels: Tensor) -> tuple[str, Callable[..., Score]]:
    """Its title, and the function of four tensors. labels: of the images to learn from."""
    kind = name.rstrip("0123456789")
    number = name.removeprefix(kind)
    if len(labels.unique()) < 2:
        raise InputError(
            "the readable images to learn from are of fewer than two classes; give at least two with several "
            "images each (frossl check names what cannot be read)"
        )
    if kind == "knn":
        k = int(number) if number else min(K, len(labels))
        if not 1 <= k <= len(labels):
            raise InputError(f"k = {k} with {len(labels)} labelled images; give fewer neighbours")
        return f"kNN, k {k}", partial(knn_accuracy, k=k)
    if kind == "probe" and number:
        smallest = int(labels.unique(return_counts=True)[1].min())
        if not 1 <= int(number) <= smallest:
            raise InputError(
                f"{number} labels a class cannot be drawn: the smallest class has {smallest}; give fewer"
            )
        few = "label" if int(number) == 1 else "labels"
        return f"probe, {number} {few} a class", partial(few_label_accuracy, per_class=int(number))
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
    subject = Subject.of(run, **where)
    if labels is None:
        labels = [few for few in FEW if few <= subject.split.smallest_class]
    return measured(subject, [*(f"probe{max(few, 0)}" for few in labels), "probe"])


def linear(
    run: str | Path, *, epochs: int = 100, lr: float = 0.3, quiet: bool = False, **where: Unpack[Where]
) -> Comparison:
    """The paper's linear probe on the trained encoder (and what it is measured against): crops and flips,
    SGD, the rate a tenth after 60% and 80% of the epochs. Minutes, where `probe` takes seconds."""
    _check_rate(lr)
    subject = Subject.of(run, **where)
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
    subject = Subject.of(run, **where)
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
