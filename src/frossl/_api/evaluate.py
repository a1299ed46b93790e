"""Evaluate runs by kNN, probes and fine-tuning, compared with pixels, the untrained network and others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from torch import Tensor

import frossl.engine as engine
from frossl._api.common import make_console, warn_renamed
from frossl._api.eval_context import EvalContext, EvalOptions
from frossl.errors import InputError
from frossl.evaluation import (
    KNN,
    EvalProtocol,
    Evaluation,
    Evaluations,
    FeatureProtocol,
    FineTune,
    Labelled,
    LinearProbe,
    Score,
    SGDProbe,
    SupervisedData,
    TrainingProtocol,
    baseline_extractors,
    extract_all,
    parse_protocol,
)
from frossl.live import ProgressBar

LARGE_K = 200
"""Neighbours of the second default protocol, if there are as many labelled images."""
LABELS_PER_CLASS = (1, 5, 10, 50)
"""Default numbers of labels per class of the few-label probes."""
BRIEF_SUFFIX = ", brief"
"""Suffix of the protocol name of an evaluation on a subset of the images, at the end of a run."""

SplitFeatures = tuple[Tensor, Tensor, Tensor, Tensor]
"""Training features (N, F), training labels (N,), test features (M, F) and test labels (M,)."""


def measure(
    run: str | Path,
    protocols: Iterable[str | EvalProtocol] | None = None,
    *,
    crops: int | None = None,
    quiet: bool = False,
    **options: Unpack[EvalOptions],
) -> Evaluations:
    """Evaluate a run by several protocols on features that are computed once.

    Results are also appended to the records of the run folder. Protocols that train come last, because they
    take minutes.

    Args:
        run: Run folder.
        protocols: Any mix of `KNN`, `LinearProbe`, `SGDProbe` and `FineTune`, or their keys: `knn` (k 20, or
            all labelled images if there are fewer), `knnN` (k N, such as `knn200`), `probe` (logistic
            regression with all labels), `probeN` (with N labels of each class, drawn ten times), `linear` and
            `finetune`. None is `knn`, and `knn200` if there are at least 200 labelled training images.
        crops: Compute the features of an image as the mean over this number of random crops, cut like the
            run's largest views, instead of from the whole image; for `KNN` and `LinearProbe` without `crops`
            of their own.
        quiet: Show no progress.
        **options: See `EvalOptions`.

    Returns:
        Evaluations by the keys of the protocols, in their order.

    Raises:
        InputError: If the data has no labels, a protocol is unknown, or a number is out of range.
    """
    KNN(crops=crops)  # raises if it is out of range, before anything is read
    chosen = None if protocols is None else [parse_protocol(given) for given in protocols]
    context = EvalContext.open(run, **options)
    if chosen is None:
        chosen = [KNN(), KNN(LARGE_K)] if len(context.split.train.ids) >= LARGE_K else [KNN()]
    if crops is not None:
        chosen = [_with_crops(protocol, crops) for protocol in chosen]
    return run_protocols(context, chosen, quiet=quiet)


def _with_crops(protocol: EvalProtocol, crops: int) -> EvalProtocol:
    if isinstance(protocol, FeatureProtocol) and protocol.crops is None:
        return replace(protocol, crops=crops)
    return protocol


def run_protocols(
    context: EvalContext, protocols: Iterable[EvalProtocol], *, brief: bool = False, quiet: bool = False
) -> Evaluations:
    """Evaluate by several protocols and save the evaluations; see `measure`.

    Args:
        context: Run, images and encoders.
        protocols: The protocols; one that is given twice is computed once.
        brief: Mark the protocols as brief, because the images are a subset.
        quiet: Show no progress.
    """
    order = list(dict.fromkeys(protocols))
    on_features = [protocol for protocol in order if isinstance(protocol, FeatureProtocol)]
    found: dict[EvalProtocol, Evaluation] = {}
    if on_features:
        found |= _score_features(context, on_features, suffix=BRIEF_SUFFIX if brief else "", quiet=quiet)
    for protocol in order:
        if isinstance(protocol, TrainingProtocol):
            found[protocol] = _train_and_score(context, protocol, quiet=quiet)
    return Evaluations.collect(found[protocol] for protocol in order)


def _score_features(
    context: EvalContext, protocols: Sequence[FeatureProtocol], *, suffix: str, quiet: bool
) -> dict[EvalProtocol, Evaluation]:
    """Score every row by protocols on features, which are computed once for each number of crops.

    Args:
        context: Run, images and encoders.
        protocols: The protocols.
        suffix: Text to append to their names.
        quiet: Show no progress.
    """
    split = context.split
    if any(protocol.crops for protocol in protocols) and set(context.encoders) - {"untrained", "trained"}:
        raise InputError("crops are cut for this run's networks; measure others without --crops")
    _check_classes(split.train.labels)
    for protocol in protocols:
        protocol.settle(split.train.labels)  # raises before anything is computed
    features = {
        crops: _extract(context, crops, quiet=quiet)
        for crops in dict.fromkeys(protocol.crops for protocol in protocols)
    }
    done, total = 0, len(protocols) * (len(context.encoders) + 2)
    evaluations: dict[EvalProtocol, Evaluation] = {}
    with ProgressBar(make_console(quiet), "measuring") as bar:
        for protocol in protocols:
            _, readable, _, _ = features[protocol.crops]["pixels"]  # without labels of unreadable files
            _check_classes(readable)
            settled = protocol.settle(readable)
            scores: dict[str, Score] = {}
            for row, tensors in features[protocol.crops].items():
                scores[row] = settled.accuracy(*tensors)
                bar.update(done := done + 1, total)
            evaluation = Evaluation(settled.name + suffix, context.note, scores, protocol)
            evaluations[protocol] = context.save(evaluation)
    return evaluations


def _extract(context: EvalContext, crops: int | None, *, quiet: bool) -> dict[str, SplitFeatures]:
    """Return the features of every row; those that had to be computed are stored in the run folder."""
    largest = max(context.config.views, key=lambda spec: spec.size)

    def of_part(images: Labelled, name: str) -> dict[str, tuple[Tensor, Tensor]]:
        extractors = baseline_extractors(images.source, context.cache)
        for row, encoder in context.encoders.items():
            extractors[row] = encoder.extractor(context.cache, images.source, largest, crops)
        with ProgressBar(make_console(quiet), name) as bar:
            return extract_all(images, extractors, progress=bar.update)

    train, test = of_part(context.split.train, "training images"), of_part(context.split.test, "test images")
    context.cache.save()
    return {row: (*train[row], *test[row]) for row in train}


def _check_classes(labels: Tensor) -> None:
    if len(labels.unique()) < 2:
        raise InputError(
            "the readable images to learn from are of fewer than two classes; give at least two with several "
            "images each (`frossl check` lists unreadable files)"
        )


def _train_and_score(context: EvalContext, protocol: TrainingProtocol, *, quiet: bool) -> Evaluation:
    """Train and score every encoder of a context by a protocol, and save the evaluation."""
    scores = {}
    for row, encoder in context.encoders.items():
        if row == "untrained" and not protocol.scores_untrained:
            continue
        with ProgressBar(make_console(quiet), row) as bar:
            supervised = SupervisedData(
                protocol.epochs,
                seed=protocol.seed,
                whole=engine.crops_whole_images(context.config, context.split.train.source),
                kernel=engine.best_view_kernel(context.device),
                max_steps=engine.max_steps(),
                progress=bar.update,
            )
            scores[row] = protocol.accuracy(encoder.encoder, context.split, supervised)
    return context.save(Evaluation(protocol.name, context.note, scores, protocol))


def _measure_one(
    run: str | Path, protocol: EvalProtocol, *, quiet: bool, **options: Unpack[EvalOptions]
) -> Evaluation:
    return run_protocols(EvalContext.open(run, **options), [protocol], quiet=quiet).of(protocol)


def knn(
    run: str | Path,
    *,
    k: int | None = None,
    crops: int | None = None,
    quiet: bool = False,
    **options: Unpack[EvalOptions],
) -> Evaluation:
    """Evaluate a run by the accuracy of weighted k nearest neighbours under cosine similarity.

    The result is also appended to the records of the run folder.

    Args:
        run: Run folder.
        k: Number of neighbours; 20 if None, or all labelled training images if there are fewer.
        crops: Compute the features of an image as the mean over this number of random crops, cut like the
            run's largest views, instead of from the whole image.
        quiet: Show no progress.
        **options: See `EvalOptions`.

    Returns:
        Accuracies of raw pixels, colors, the untrained and the trained network, and others.

    Raises:
        InputError: If the data has no labels or a number is out of range.
    """
    return _measure_one(run, KNN(k, crops=crops), quiet=quiet, **options)


def probe(
    run: str | Path,
    *,
    per_class: int | Sequence[int] | None = None,
    quiet: bool = False,
    labels: int | Sequence[int] | None = None,
    **options: Unpack[EvalOptions],
) -> Evaluations:
    """Evaluate a run by logistic regression on frozen features, with few labels and with all.

    With all labels, the regularization is chosen on a fifth of them. With few, labels are drawn ten times.
    Results are also appended to the records of the run folder.

    Args:
        run: Run folder.
        per_class: Number of labels per class, or several; those of 1, 5, 10 and 50 that the smallest class
            has if None.
        quiet: Show no progress.
        labels: Deprecated name of `per_class`.
        **options: See `EvalOptions`.

    Returns:
        Evaluations by protocol: `probeN` for each N of `per_class`, and `probe` with all labels.

    Raises:
        InputError: If the data has no labels, or the smallest class has too few.
    """
    if labels is not None:
        warn_renamed("labels", "per_class")
        if per_class is not None:
            raise InputError("per_class and labels, its former name, are both given; give per_class only")
        per_class = labels
    counts = [per_class] if isinstance(per_class, int) else per_class
    few = None if counts is None else [LinearProbe(count) for count in counts]
    context = EvalContext.open(run, **options)
    if few is None:
        few = [LinearProbe(count) for count in LABELS_PER_CLASS if count <= context.split.smallest_class]
    return run_protocols(context, [*few, LinearProbe()], quiet=quiet)


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
    return _measure_one(run, SGDProbe(epochs, lr), quiet=quiet, **options)


def finetune(
    run: str | Path,
    *,
    fraction: float = 1.0,
    epochs: int = 30,
    lr: float = 1e-3,
    layer_decay: float = 1.0,
    mixup: float = 0.0,
    seed: int = 0,
    quiet: bool = False,
    labels: float | None = None,
    **options: Unpack[EvalOptions],
) -> Evaluation:
    """Evaluate a run by fine-tuning all layers with labels, from its weights and from untrained ones.

    The difference between the two is what pretraining contributes. Copies of the encoders are trained by
    AdamW with warm-up and cosine schedule; the encoder of the run does not change. The result is also
    appended to the records of the run folder.

    Args:
        run: Run folder.
        fraction: Fraction of the labels of every class to train on; 0.01 is 1%.
        epochs: Number of passes over these images.
        lr: Peak learning rate.
        layer_decay: Learning rate of each layer as a multiple of that of the next layer; 1 for none.
        mixup: Parameter of the Beta distribution from which mixup draws its shares; 0 for no mixup.
        seed: Seed of image order, crops and mixup.
        quiet: Show no progress.
        labels: Deprecated name of `fraction`.
        **options: See `EvalOptions`.

    Returns:
        Accuracies after fine-tuning of the untrained and the trained network, and of others.

    Raises:
        InputError: If the data has no labels or a number is out of range.
    """
    if labels is not None:
        warn_renamed("labels", "fraction")
        if fraction != 1:
            raise InputError("fraction and labels, its former name, are both given; give fraction only")
        fraction = labels
    protocol = FineTune(
        fraction=fraction, epochs=epochs, lr=lr, layer_decay=layer_decay, mixup=mixup, seed=seed
    )
    return _measure_one(run, protocol, quiet=quiet, **options)
