"""Evaluate runs by kNN, probes and fine-tuning, compared with pixels, the untrained network and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from torch import Tensor

import frossl.engine as engine
from frossl._api.common import make_console
from frossl._api.eval_context import EvalContext, EvalOptions
from frossl.errors import InputError, unknown
from frossl.evaluation import (
    EvalSplit,
    Evaluation,
    Labelled,
    Score,
    SupervisedData,
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
from frossl.live import ProgressBar
from frossl.networks import Encoder

DEFAULT_K = 20
"""Neighbours of kNN, if no number is given."""
LARGE_K = 200
"""Neighbours of the second default protocol, if there are as many labelled images."""
LABELS_PER_CLASS = (1, 5, 10, 50)
"""Default numbers of labels per class of the few-label probes."""
MAX_CROPS = 1000
BRIEF_SUFFIX = ", brief"
"""Suffix of the protocol name of an evaluation on a subset of the images, at the end of a run."""

SplitFeatures = tuple[Tensor, Tensor, Tensor, Tensor]
"""Training features (N, F), training labels (N,), test features (M, F) and test labels (M,)."""


def measure(
    run: str | Path,
    protocols: Iterable[str] | None = None,
    *,
    crops: int | None = None,
    **options: Unpack[EvalOptions],
) -> dict[str, Evaluation]:
    """Evaluate a run by several protocols on features that are computed once.

    Results are also appended to the records of the run folder.

    Args:
        run: Run folder.
        protocols: Any of `knn` (k 20, or all labelled images if there are fewer), `knnN` (k N, such as
            `knn200`), `probe` (logistic regression with all labels) and `probeN` (with N labels of each
            class, drawn ten times). None is `knn`, and `knn200` if there are at least 200 labelled training
            images.
        crops: Compute the features of an image as the mean over this number of random crops, cut like the
            run's largest views, instead of from the whole image.
        **options: See `EvalOptions`.

    Returns:
        Evaluations by protocol.

    Raises:
        InputError: If the data has no labels, a protocol is unknown, or a number is out of range.
    """
    if crops is not None and not 1 <= crops <= MAX_CROPS:
        raise InputError(f"crops = {crops}; give 1 to {MAX_CROPS} crops of each image")
    context = EvalContext.open(run, **options)
    if protocols is None:
        protocols = ["knn", f"knn{LARGE_K}"] if len(context.split.train.ids) >= LARGE_K else ["knn"]
    return run_protocols(context, protocols, crops)


def run_protocols(
    context: EvalContext, protocols: Iterable[str], crops: int | None = None, *, brief: bool = False
) -> dict[str, Evaluation]:
    """Evaluate by several protocols; see `measure`.

    Args:
        context: Run, images and encoders.
        protocols: Names of the protocols.
        crops: Number of random crops per image.
        brief: Show no progress and mark the protocols as brief, because the images are a subset.
    """
    if crops is not None and set(context.encoders) - {"untrained", "trained"}:
        raise InputError("crops are cut for this run's networks; measure others without --crops")
    split, largest = context.split, max(context.config.views, key=lambda spec: spec.size)
    names = list(protocols)
    for name in names:
        _parse_protocol(name, split.train.labels)  # raises before anything is computed

    def features(encoder: Encoder, images: Labelled) -> tuple[Tensor, Tensor]:
        if crops is None:
            return extract(encoder, images)
        return bag_of_features(encoder, images, largest, crops=crops)

    extractors: dict[str, Callable[[Labelled], tuple[Tensor, Tensor]]] = {"pixels": pixels, "colors": colors}
    extractors |= {row: partial(features, encoder) for row, encoder in context.encoders.items()}
    evaluations, done, total = {}, 0, len(extractors) * (1 + len(names))
    with ProgressBar(make_console(quiet=brief), "measuring") as bar:
        rows: dict[str, SplitFeatures] = {}
        for row, extractor in extractors.items():
            rows[row] = (*extractor(split.train), *extractor(split.test))
            bar.update(done := done + 1, total)
        _, readable, _, _ = rows["pixels"]  # labels without those of unreadable files
        for name in names:
            title, accuracy = _parse_protocol(name, readable)
            title += f", bag of {crops} crops" if crops else ""
            title += BRIEF_SUFFIX if brief else ""
            scores: dict[str, Score] = {}
            for row, tensors in rows.items():
                scores[row] = accuracy(*tensors)
                bar.update(done := done + 1, total)
            evaluations[name] = context.save(Evaluation(title, split.note, scores))
    return evaluations


def _parse_protocol(name: str, labels: Tensor) -> tuple[str, Callable[..., Score]]:
    """Return the title of a protocol and its function of `SplitFeatures`.

    Args:
        name: Name of the protocol, such as `knn20`.
        labels: Labels of the training images, which limit k and the labels per class.
    """
    kind = name.rstrip("0123456789")
    number = name.removeprefix(kind)
    if len(labels.unique()) < 2:
        raise InputError(
            "the readable images to learn from are of fewer than two classes; give at least two with several "
            "images each (`frossl check` lists unreadable files)"
        )
    if kind == "knn":
        k = int(number) if number else min(DEFAULT_K, len(labels))
        if not 1 <= k <= len(labels):
            raise InputError(f"k = {k} with {len(labels)} labelled images; give fewer neighbours")
        return f"kNN, k {k}", partial(knn_accuracy, k=k)
    if kind == "probe" and number:
        smallest = int(labels.unique(return_counts=True)[1].min())
        if not 1 <= int(number) <= smallest:
            raise InputError(
                f"{number} labels a class cannot be drawn: the smallest class has {smallest}; give fewer"
            )
        noun = "label" if int(number) == 1 else "labels"
        return f"probe, {number} {noun} a class", partial(few_label_accuracy, per_class=int(number))
    if name != "probe":
        raise unknown("protocol", name, ["knn", "knn200", "probe", "probe10"])
    return "probe, all labels", logistic_accuracy


def knn(
    run: str | Path, *, k: int | None = None, crops: int | None = None, **options: Unpack[EvalOptions]
) -> Evaluation:
    """Evaluate a run by the accuracy of weighted k nearest neighbours under cosine similarity.

    The result is also appended to the records of the run folder.

    Args:
        run: Run folder.
        k: Number of neighbours; 20 if None, or all labelled training images if there are fewer.
        crops: Compute the features of an image as the mean over this number of random crops, cut like the
            run's largest views, instead of from the whole image.
        **options: See `EvalOptions`.

    Returns:
        Accuracies of raw pixels, colors, the untrained and the trained network, and others.

    Raises:
        InputError: If the data has no labels or a number is out of range.
    """
    name = "knn" if k is None else f"knn{max(k, 0)}"
    return measure(run, [name], crops=crops, **options)[name]


def probe(
    run: str | Path, *, labels: Sequence[int] | None = None, **options: Unpack[EvalOptions]
) -> dict[str, Evaluation]:
    """Evaluate a run by logistic regression on frozen features, with few labels and with all.

    With all labels, the regularization is chosen on a fifth of them. With few, labels are drawn ten times.
    Results are also appended to the records of the run folder.

    Args:
        run: Run folder.
        labels: Numbers of labels per class; those of 1, 5, 10 and 50 that the smallest class has if None.
        **options: See `EvalOptions`.

    Returns:
        Evaluations by protocol: `probeN` for each N of `labels`, and `probe` with all labels.

    Raises:
        InputError: If the data has no labels, or the smallest class has too few.
    """
    context = EvalContext.open(run, **options)
    if labels is None:
        labels = [count for count in LABELS_PER_CLASS if count <= context.split.smallest_class]
    return run_protocols(context, [*(f"probe{max(count, 0)}" for count in labels), "probe"])


def linear(
    run: str | Path,
    *,
    epochs: int = 100,
    lr: float = 0.3,
    quiet: bool = False,
    **options: Unpack[EvalOptions],
) -> Evaluation:
    """Evaluate a run by the linear probe of the FroSSL paper, on the trained encoder and those of `against`.

    A linear layer on the frozen encoder is trained by SGD on random crops and flips; the learning rate is
    divided by ten after 60% and again after 80% of the epochs. It takes minutes where `probe` takes seconds.
    The result is also appended to the records of the run folder.

    Args:
        run: Run folder.
        epochs: Number of passes over the labelled images.
        lr: Learning rate.
        quiet: Show no progress.
        **options: See `EvalOptions`.

    Returns:
        Accuracies of the trained network and of others.

    Raises:
        InputError: If the data has no labels, a number is out of range, or the probe diverges.
    """
    _check_lr(lr)
    context = EvalContext.open(run, **options)
    protocol = f"linear probe as in the paper, {epochs} epochs, rate {lr:g}"
    return _train_and_score(
        context, protocol, epochs, partial(linear_probe, lr=lr), skip="untrained", quiet=quiet
    )


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
    **options: Unpack[EvalOptions],
) -> Evaluation:
    """Evaluate a run by fine-tuning all layers with labels, from its weights and from untrained ones.

    The difference between the two is what pretraining contributes. Copies of the encoders are trained by
    AdamW with warm-up and cosine schedule; the encoder of the run does not change. The result is also
    appended to the records of the run folder.

    Args:
        run: Run folder.
        labels: Share of the labels of every class to train on; 0.01 is 1%.
        epochs: Number of passes over these images.
        lr: Peak learning rate.
        layer_decay: Learning rate of each layer as a multiple of that of the next layer; 1 for none.
        mixup: Parameter of the Beta distribution from which mixup draws its shares; 0 for no mixup.
        seed: Seed of image order, crops and mixup.
        quiet: Show no progress.
        **options: See `EvalOptions`.

    Returns:
        Accuracies after fine-tuning of the untrained and the trained network, and of others.

    Raises:
        InputError: If the data has no labels or a number is out of range.
    """
    _check_lr(lr)
    context = EvalContext.open(run, **options)
    settings = f"{labels:.3g} of the labels, {epochs} epochs, rate {lr:g}"
    settings += f", layer decay {layer_decay:g}" if layer_decay < 1 else ""
    settings += f", mixup {mixup:g}" if mixup else ""
    tune = partial(finetune_accuracy, labels=labels, lr=lr, layer_decay=layer_decay, mixup=mixup)
    return _train_and_score(context, f"fine-tuned, {settings}", epochs, tune, seed=seed, quiet=quiet)


def _check_lr(lr: float) -> None:
    if not 0 < lr < math.inf:
        raise InputError(f"lr = {lr:g}; give a positive learning rate")


def _train_and_score(
    context: EvalContext,
    protocol: str,
    epochs: int,
    accuracy: Callable[[Encoder, EvalSplit, SupervisedData], Score],
    *,
    skip: str = "",
    seed: int = 0,
    quiet: bool = False,
) -> Evaluation:
    """Train and score every encoder of a context except the row `skip`, and save the evaluation."""
    if epochs < 1:
        raise InputError(f"epochs = {epochs}; give at least 1")
    if seed < 0:
        raise InputError(f"seed = {seed}; give 0 or more")
    scores = {}
    for row, encoder in context.encoders.items():
        if row == skip:
            continue
        with ProgressBar(make_console(quiet), row) as bar:
            supervised = SupervisedData(
                epochs,
                seed=seed,
                kernel=engine.best_view_kernel(context.device),
                max_steps=engine.max_steps(),
                progress=bar.update,
            )
            scores[row] = accuracy(encoder, context.split, supervised)
    return context.save(Evaluation(protocol, context.split.note, scores))
