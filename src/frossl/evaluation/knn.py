"""Weighted k-nearest-neighbour classification by cosine similarity."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from frossl.errors import InputError
from frossl.evaluation.split import Score


@torch.inference_mode()
def knn_accuracy(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
) -> Score:
    """Classify each test row by a vote of its k nearest training rows, weighted by exp(cosine / temperature).

    Cost: O(M·N·F), in blocks of 1,024 test rows.

    Args:
        train: Training features (N, F).
        train_labels: Training labels (N,).
        test: Test features (M, F).
        test_labels: Test labels (M,).
        k: Number of neighbours, 1 ≤ k ≤ N.
        temperature: Temperature of the weights.

    Returns:
        Accuracy on the test rows.

    Raises:
        InputError: If `k` is out of range.
    """
    if not 1 <= k <= len(train):
        raise InputError(f"k = {k} with {len(train)} labelled images; give 1 ≤ k ≤ {len(train)}")
    train, classes = F.normalize(train, dim=1), int(train_labels.max()) + 1
    scores = []
    for rows in F.normalize(test, dim=1).split(1024):
        cosine, nearest = (rows @ train.T).topk(k, dim=1)
        votes = torch.zeros(len(rows), classes).scatter_add_(
            1, train_labels[nearest], (cosine / temperature).exp()
        )
        scores.append(votes)
    return Score.of_ranked(torch.cat(scores), test_labels)
