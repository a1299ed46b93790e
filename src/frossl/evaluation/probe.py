"""Linear probes: logistic regression on extracted features, and the FroSSL paper's SGD protocol."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from frossl.data import held_out
from frossl.errors import InputError
from frossl.evaluation.features import extract
from frossl.evaluation.logistic import LogisticRegressions
from frossl.evaluation.split import EvalSplit, Score
from frossl.evaluation.supervised import SupervisedData, zero_head
from frossl.networks import Encoder

C_GRID = (0.001, 0.01, 0.1, 1.0)
"""Candidate values of C, the inverse regularization strength of scikit-learn."""
FEW_LABELS_C = 0.1
"""Value of C where there are too few labels to validate."""
HUGE = 1e15
"""Absolute value of features from which on they are scaled before anything is computed."""
MAX_ELEMENTS = 1 << 25
"""Largest number of values of the rows or logits of problems that are solved together."""


def logistic_accuracy(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> Score:
    """Fit a logistic regression to all training features; C is chosen on 20% of them.

    Args:
        train: Training features (N, F).
        train_labels: Training labels (N,).
        test: Test features (M, F).
        test_labels: Test labels (M,).

    Returns:
        Accuracy on the test rows.

    Raises:
        InputError: If the training labels are of one class.
    """
    train, test = _standardize(train, test)
    classes, targets = train_labels.unique(return_inverse=True)
    validation = held_out(train_labels)
    by_rows = len(train) < train.shape[1]
    final = _regressions(train[None], targets[None], len(classes), by_rows=by_rows)
    C = FEW_LABELS_C
    if validation.any():
        rows, known = train[~validation][None], targets[~validation][None]
        path = _regressions(rows, known, len(classes), by_rows=by_rows)
        found = {
            C: Score.of_ranked(path.fit(C).logits(train[validation])[0], targets[validation]).percent
            for C in C_GRID
        }
        C = max(C_GRID, key=lambda C: found[C])
        final.start_from(path, ~validation)
    return Score.of_ranked(final.fit(C).logits(test)[0], test_labels, classes)


def few_label_accuracy(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    per_class: int = 10,
    draws: int = 10,
    seed: int = 0,
) -> Score:
    """Fit a logistic regression to few labels per class, several times over.

    Args:
        train: Training features (N, F).
        train_labels: Training labels (N,).
        test: Test features (M, F).
        test_labels: Test labels (M,).
        per_class: Number of labels per class, at most the size of the smallest class.
        draws: Number of random draws of the labels.
        seed: Seed of the draws.

    Returns:
        Mean accuracy over the draws and the standard deviation between them.

    Raises:
        InputError: If a class has fewer than `per_class` labels.
    """
    classes, counts = train_labels.unique(return_counts=True)
    if not 1 <= per_class <= counts.min():
        raise InputError(
            f"{per_class} labels a class cannot be drawn: the smallest class has {counts.min()}; "
            f"give 1 to {counts.min()}"
        )
    train, test = _standardize(train, test)
    targets = train_labels.unique(return_inverse=True)[1]
    chosen = torch.stack([_draw(targets, per_class, random=(seed, draw)) for draw in range(draws)])
    scores = []
    for ids in chosen.split(_draws_at_once(train, chosen.shape[1], len(classes))):
        fitted = _regressions(train[ids], targets[ids], len(classes)).fit(FEW_LABELS_C)
        scores += [Score.of_ranked(votes, test_labels, classes) for votes in fitted.logits(test)]
    return Score.over(scores)


def _draw(targets: Tensor, per_class: int, *, random: tuple[int, int]) -> Tensor:
    """Return the rows of `per_class` random labels of each class."""
    generator = np.random.default_rng(random)
    drawn = [
        generator.permutation((targets == c).nonzero()[:, 0].numpy())[:per_class]
        for c in range(int(targets.max()) + 1)
    ]
    return torch.from_numpy(np.concatenate(drawn))


def _draws_at_once(train: Tensor, rows: int, classes: int) -> int:
    """Return the number of draws that are fitted together, within a bound on memory."""
    return max(1, MAX_ELEMENTS // (rows * max(train.shape[1], classes)))


def _standardize(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Standardize by the mean and deviation of the whole training set, which needs no labels."""
    largest = train.abs().amax(0)
    if largest.max() > HUGE:  # squares would be infinite
        train, test = train / largest.clamp_min(1), test / largest.clamp_min(1)
    mean, std = train.mean(0), train.std(0).clamp_min(1e-6)
    return ((train - mean) / std).float(), ((test - mean) / std).float()


def _regressions(
    rows: Tensor, targets: Tensor, classes: int, *, by_rows: bool | None = None
) -> LogisticRegressions:
    if classes < 2:
        raise InputError(
            "the readable images to learn from are of one class; `frossl check` names what cannot be read"
        )
    return LogisticRegressions(rows, targets, classes, by_rows=by_rows)


def linear_probe(encoder: Encoder, split: EvalSplit, supervised: SupervisedData, *, lr: float = 0.3) -> Score:
    """Train a linear classifier on the frozen encoder by the protocol of the FroSSL paper.

    Training uses random crops and flips and SGD (learning rate 0.3, momentum 0.9, no weight decay); the
    learning rate is divided by 10 after 60% of the epochs and again after 80%. The test uses whole images.
    The encoder is put into evaluation mode, and its weights are not changed.

    Args:
        encoder: The frozen encoder.
        split: Images to train on and to test on.
        supervised: Epochs, batch size and seed of the training.
        lr: Initial learning rate.

    Returns:
        Accuracy on the test images.

    Raises:
        InputError: If the classifier diverges.
    """
    head = zero_head(encoder.num_features, split.classes, encoder.mean.device)
    optimizer = torch.optim.SGD(head.parameters(), lr, momentum=0.9)
    encoder.eval()
    for views, labels, clock in supervised.batches(split.train, encoder):
        progress = clock.epoch / supervised.epochs
        optimizer.param_groups[0]["lr"] = lr * (1.0 if progress < 0.6 else 0.1 if progress < 0.8 else 0.01)
        with torch.no_grad():
            features = encoder.backbone(views).float()
        optimizer.zero_grad()
        F.cross_entropy(head(features), labels).backward()
        optimizer.step()
    if not head.weight.isfinite().all():
        raise InputError(f"the probe diverged at rate {lr:g}, as its features are large; give a lower one")
    features, labels = extract(encoder, split.test)
    with torch.no_grad():
        return Score.of_ranked(head.cpu()(features), labels)
