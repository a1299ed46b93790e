"""Accuracy while a run trains. Nothing here reaches the networks: features arrive detached."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.evaluation.difference import Difference
from frossl.evaluation.features import Rows, extract
from frossl.evaluation.knn import knn_accuracy
from frossl.evaluation.split import TOGETHER, Score, Split
from frossl.evaluation.supervised import zero_head

RATE = 0.1
LARGEST_BANK, LARGEST_TEST = 2000, 500
K = 20


class OnlineProbe:
    """A linear classifier that takes one step of its own with every step of the run.

    Features are standardized first (BatchNorm without weights), so that one rate serves any scale of them.
    """

    def __init__(self, features: int, labels: Tensor, *, device: torch.device | str = "cpu") -> None:
        """labels: (N,) by id; −1 is none, and is not learned from."""
        self.labels = labels.to(device)
        self._all_known = bool((labels >= 0).all())  # choosing rows waits for the device
        self.norm = nn.BatchNorm1d(features, affine=False, device=device)
        self.linear = zero_head(features, int(labels.max()) + 1, device)
        self.optimizer = torch.optim.SGD(self.linear.parameters(), lr=RATE / features**0.5, momentum=0.9)
        self._right: list[Tensor] = []

    @torch.enable_grad()
    def step(self, ids: Tensor, features: Tensor) -> None:
        """Features (V, N, F) of the training views, and the ids (N,) of their images."""
        labels, features = self.labels[ids.to(self.labels.device)], features.detach()
        if not self._all_known:
            known = labels >= 0
            labels, features = labels[known], features[:, known]
        rows, targets = features.flatten(0, 1), labels.repeat(len(features))
        if len(rows) < 2:
            return
        logits = self.linear(self.norm(rows))
        self._right.append((logits.detach().argmax(1) == targets).float().mean())
        self.optimizer.zero_grad()
        F.cross_entropy(logits, targets).backward()
        self.optimizer.step()

    def seen(self) -> float | None:
        """Percent right of the training views since this was last asked, each before it was learned from."""
        if not self._right:
            return None
        percent = 100 * torch.stack(self._right).mean().item()
        self._right.clear()
        return percent

    @torch.no_grad()
    def accuracy(self, features: Tensor, labels: Tensor) -> Score:
        """Of unaugmented images."""
        self.norm.eval()
        logits = self.linear(self.norm(features.to(self.labels.device)))
        self.norm.train()
        return Score.of(logits.argmax(1).cpu() == labels)

    def state_dict(self) -> dict[str, Any]:
        return {
            "norm": self.norm.state_dict(),
            "linear": self.linear.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """False, and nothing is loaded, where it is of other classes or not finite."""
        weight = state["linear"]["weight"]
        if weight.shape != self.linear.weight.shape or not weight.isfinite().all():
            return False
        self.norm.load_state_dict(state["norm"])
        self.linear.load_state_dict(state["linear"])
        self.optimizer.load_state_dict(state["optimizer"])
        return True


def online_labels(split: Split, images: int) -> Tensor:
    """(N,) by id, for a probe: those of the images that nobody is tested on; −1 for the others."""
    labels = torch.full((images,), -1)
    labels[split.bank.ids] = split.bank.labels
    return labels


class OnlineKnn:
    """Nearest neighbours among a few of the unaugmented images, the same each time."""

    def __init__(self, split: Split) -> None:
        self.bank, self.test = split.bank.at_most(LARGEST_BANK), split.test.at_most(LARGEST_TEST)
        self._together = {"copies": split.copies} if split.kind == TOGETHER else {}
        self.start: Score | None = None
        """That of the network before the first step, once it was measured."""

    def measure(self, encoder: nn.Module) -> dict[str, float]:
        """Percent right, and of how many images; how far that is above the start, and its 95% interval;
        `copies` where some are kept on one side of the split."""
        score = self.score(encoder)
        numbers = {"knn": score.percent, "tested": score.images, **self._together}
        if self.start is None:
            return numbers
        gain = Difference.between(score, self.start)
        low, high = gain.interval
        return {**numbers, "knn_gain": gain.points, "knn_gain_low": low, "knn_gain_high": high}

    def score(self, encoder: nn.Module) -> Score:
        bank, labels = extract(encoder, self.bank)
        return knn_accuracy(bank, labels, *self.tested(encoder), k=min(K, len(bank)))

    def tested(self, encoder: nn.Module) -> Rows:
        """Features and labels of the images that are tested on."""
        return extract(encoder, self.test)
