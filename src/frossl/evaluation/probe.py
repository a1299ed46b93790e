"""Probes: logistic regression on kept features by scikit-learn, and the paper's protocol."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from frossl.data import held_out
from frossl.errors import InputError
from frossl.evaluation.features import extract
from frossl.evaluation.split import Score, Split
from frossl.evaluation.supervised import Schooling, zero_head
from frossl.networks import Encoder

STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""Inverse regularization to choose from."""
FEW_LABEL_STRENGTH = 0.1
"""Fixed where there are too few labels to choose by."""


def logistic_accuracy(bank: Tensor, bank_labels: Tensor, test: Tensor, test_labels: Tensor) -> Score:
    """All labels of the bank; the regularization chosen on 20% of them, then fitted to all."""
    bank, test = _standardized(bank, test)
    chosen = held_out(bank_labels)

    def validated(strength: float) -> float:
        left, right = (bank[~chosen], bank_labels[~chosen]), (bank[chosen], bank_labels[chosen])
        return _fitted(*left, *right, strength).percent

    best = max(STRENGTHS, key=validated) if chosen.any() else FEW_LABEL_STRENGTH
    return _fitted(bank, bank_labels, test, test_labels, best)


def few_label_accuracy(
    bank: Tensor,
    bank_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    per_class: int = 10,
    draws: int = 10,
    seed: int = 0,
) -> Score:
    """`per_class` labels of every class, drawn several times: mean and deviation over the draws."""
    classes, counts = bank_labels.unique(return_counts=True)
    if not 1 <= per_class <= counts.min():
        raise InputError(
            f"{per_class} labels a class cannot be drawn: the smallest class has {counts.min()}; "
            f"give 1 to {counts.min()}"
        )
    bank, test = _standardized(bank, test)
    scores = []
    for draw in range(draws):
        random = np.random.default_rng((seed, draw))
        ids = np.concatenate(
            [
                random.permutation((bank_labels == c).nonzero()[:, 0].numpy())[:per_class]
                for c in classes.tolist()
            ]
        )
        scores.append(_fitted(bank[ids], bank_labels[ids], test, test_labels, FEW_LABEL_STRENGTH))
    return Score.over(scores)


def _standardized(bank: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """By the mean and deviation of the whole bank, which needs no label."""
    mean, std = bank.mean(0), bank.std(0).clamp_min(1e-6)
    return (bank - mean) / std, (test - mean) / std


def _fitted(bank: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, strength: float) -> Score:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(labels.unique()) < 2:
        raise InputError(
            "the readable images to learn from are of one class; `frossl check` names what cannot be read"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the accuracy settles long before the weights
        model = LogisticRegression(C=strength, max_iter=200).fit(bank.numpy(), labels.numpy())
    votes = torch.from_numpy(model.predict_proba(test.numpy()))
    return Score.of_ranked(votes, test_labels, torch.from_numpy(model.classes_))


def linear_probe(encoder: Encoder, split: Split, schooling: Schooling, *, lr: float = 0.3) -> Score:
    """The paper's protocol: a linear layer on the frozen encoder, trained on random crops and flips by SGD
    (rate 0.3, momentum 0.9, no weight decay), the rate a tenth after 60% of the epochs and again after 80%;
    tested on whole images. The encoder stays in evaluation mode and as it is."""
    head = zero_head(encoder.num_features, split.classes, encoder.mean.device)
    optimizer = torch.optim.SGD(head.parameters(), lr, momentum=0.9)
    encoder.eval()
    for views, labels, clock in schooling.lessons(split.bank, encoder):
        done = clock.epoch / schooling.epochs
        optimizer.param_groups[0]["lr"] = lr * (1.0 if done < 0.6 else 0.1 if done < 0.8 else 0.01)
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
