"""Online evaluation during training: a linear probe and kNN.

No gradient of theirs reaches the trained networks, because features are detached.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.evaluation.difference import Difference
from frossl.evaluation.features import Rows, extract
from frossl.evaluation.knn import knn_accuracy
from frossl.evaluation.split import HASH_SPLIT_GROUPED, EvalSplit, Score
from frossl.evaluation.supervised import zero_head

PROBE_LR = 0.1
"""Learning rate of the online probe for one feature; it is divided by the square root of their number."""
KNN_MAX_TRAIN = 2000
KNN_MAX_TEST = 500
KNN_NEIGHBORS = 20


class OnlineProbe:
    """Linear classifier that is trained by one SGD step of its own in every training step.

    Features are standardized first (BatchNorm without weights), so that one learning rate fits any scale.
    """

    def __init__(self, features: int, labels: Tensor, *, device: torch.device | str = "cpu") -> None:
        """Create a classifier whose weights are zero.

        Args:
            features: Number of features F.
            labels: Labels (N,) indexed by image id; images with label −1 are not learned from.
            device: Device of the classifier.
        """
        self.labels = labels.to(device)
        self._all_known = bool((labels >= 0).all())  # selecting rows would synchronize with the device
        self.norm = nn.BatchNorm1d(features, affine=False, device=device)
        self.linear = zero_head(features, int(labels.max()) + 1, device)
        self.optimizer = torch.optim.SGD(self.linear.parameters(), lr=PROBE_LR / features**0.5, momentum=0.9)
        self._correct: list[Tensor] = []

    @torch.enable_grad()
    def step(self, ids: Tensor, features: Tensor) -> None:
        """Take one step on the features of the training views.

        Args:
            ids: Ids (N,) of the images.
            features: Features (V, N, F) of their views.
        """
        labels, features = self.labels[ids.to(self.labels.device)], features.detach()
        if not self._all_known:
            known = labels >= 0
            labels, features = labels[known], features[:, known]
        rows, targets = features.flatten(0, 1), labels.repeat(len(features))
        if len(rows) < 2:
            return
        logits = self.linear(self.norm(rows))
        self._correct.append((logits.detach().argmax(1) == targets).float().mean())
        self.optimizer.zero_grad()
        F.cross_entropy(logits, targets).backward()
        self.optimizer.step()

    def seen(self) -> float | None:
        """Return the accuracy in percent on the training views since the last call, or None without any.

        Each view was classified before the classifier learned from it.
        """
        if not self._correct:
            return None
        percent = 100 * torch.stack(self._correct).mean().item()
        self._correct.clear()
        return percent

    @torch.no_grad()
    def accuracy(self, features: Tensor, labels: Tensor) -> Score:
        """Return the accuracy on features (N, F) of unaugmented images with labels (N,)."""
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
        """Load a state; return False, and load nothing, if its shape differs or it is not finite."""
        weight = state["linear"]["weight"]
        if weight.shape != self.linear.weight.shape or not weight.isfinite().all():
            return False
        self.norm.load_state_dict(state["norm"])
        self.linear.load_state_dict(state["linear"])
        self.optimizer.load_state_dict(state["optimizer"])
        return True


def online_labels(split: EvalSplit, images: int) -> Tensor:
    """Return labels (images,) indexed by id: those of the training side of `split`, −1 for all others."""
    labels = torch.full((images,), -1)
    labels[split.train.ids] = split.train.labels
    return labels


class OnlineKnn:
    """kNN accuracy on a small fixed subset of the unaugmented images."""

    def __init__(self, split: EvalSplit) -> None:
        self.train, self.test = split.train.at_most(KNN_MAX_TRAIN), split.test.at_most(KNN_MAX_TEST)
        self._copies = {"copies": split.copies} if split.kind == HASH_SPLIT_GROUPED else {}
        self.start: Score | None = None
        """Score of the network before the first step; None until it is measured."""

    def measure(self, encoder: nn.Module) -> dict[str, float]:
        """Return the numbers of a record: accuracy in percent (`knn`), number of test images (`tested`).

        Once `start` is set, the gain over it in points (`knn_gain`) and its 95% interval (`knn_gain_low`,
        `knn_gain_high`) are included; `copies` where the split groups exact copies.
        """
        score = self.score(encoder)
        numbers = {"knn": score.percent, "tested": score.images, **self._copies}
        if self.start is None:
            return numbers
        gain = Difference.between(score, self.start)
        low, high = gain.interval
        return {**numbers, "knn_gain": gain.points, "knn_gain_low": low, "knn_gain_high": high}

    def score(self, encoder: nn.Module) -> Score:
        """Return the kNN accuracy of an encoder."""
        train, labels = extract(encoder, self.train)
        return knn_accuracy(train, labels, *self.tested(encoder), k=min(KNN_NEIGHBORS, len(train)))

    def tested(self, encoder: nn.Module) -> Rows:
        """Return features and labels of the test images."""
        return extract(encoder, self.test)
