"""Logistic regression on cached features, by scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from frossl.data import held_out
from frossl.evaluation.split import Score

STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""Inverse regularization to choose from."""
FEW_LABEL_STRENGTH = 0.1
"""Fixed where there are too few labels to choose by."""


def logistic_accuracy(bank: Tensor, bank_labels: Tensor, test: Tensor, test_labels: Tensor) -> Score:
    """All labels of the bank; the regularization chosen on 20% of them, then fitted to all."""
    bank, test = _standardized(bank, test)
    chosen = held_out(bank_labels)

    def validated(strength: float) -> float:
        right = _right(bank[~chosen], bank_labels[~chosen], bank[chosen], bank_labels[chosen], strength)
        return right.double().mean().item()

    best = max(STRENGTHS, key=validated)
    return Score.of(_right(bank, bank_labels, test, test_labels, best))


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
    bank, test = _standardized(bank, test)
    percents = []
    for draw in range(draws):
        random = np.random.default_rng((seed, draw))
        ids = np.concatenate(
            [
                random.permutation((bank_labels == c).nonzero()[:, 0].numpy())[:per_class]
                for c in bank_labels.unique().tolist()
            ]
        )
        right = _right(bank[ids], bank_labels[ids], test, test_labels, FEW_LABEL_STRENGTH)
        percents.append(100 * right.double().mean().item())
    return Score(float(np.mean(percents)), float(np.std(percents, ddof=1)) if draws > 1 else 0.0)


def _standardized(bank: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """By the mean and deviation of the whole bank, which needs no label."""
    mean, std = bank.mean(0), bank.std(0).clamp_min(1e-6)
    return (bank - mean) / std, (test - mean) / std


def _right(bank: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, strength: float) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the accuracy settles long before the weights
        model = LogisticRegression(C=strength, max_iter=200).fit(bank.numpy(), labels.numpy())
    return torch.from_numpy(model.predict(test.numpy())) == test_labels
