"""Weighted k nearest neighbours by cosine."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from frossl.errors import InputError
from frossl.evaluation.split import Score


@torch.inference_mode()
def knn_accuracy(
    bank: Tensor,
    bank_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
) -> Score:
    """Each test row (M, F) asks the k nearest of the bank (N, F) to vote with exp(cosine / temperature).

    Cost: O(M·N·F), in blocks of 1,024 test rows.
    """
    if not 1 <= k <= len(bank):
        raise InputError(f"k = {k} with {len(bank)} labelled images; give 1 ≤ k ≤ {len(bank)}")
    bank, classes = F.normalize(bank, dim=1), int(bank_labels.max()) + 1
    scores = []
    for rows in F.normalize(test, dim=1).split(1024):
        cosine, nearest = (rows @ bank.T).topk(k, dim=1)
        votes = torch.zeros(len(rows), classes).scatter_add_(
            1, bank_labels[nearest], (cosine / temperature).exp()
        )
        scores.append(votes)
    return Score.of_ranked(torch.cat(scores), test_labels)
