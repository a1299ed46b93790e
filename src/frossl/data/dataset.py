"""A data set: parts to learn from and to be tested on."""

from __future__ import annotations

from dataclasses import dataclass

from frossl.data.labels import Labels, stratified
from frossl.data.sources import Source

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10: Statistics = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
STL10: Statistics = ((0.4914, 0.4823, 0.4466), (0.247, 0.243, 0.261))
FASHION_MNIST: Statistics = ((0.2860,), (0.3530,))
CIFAR100: Statistics = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


@dataclass(frozen=True)
class Part:
    source: Source
    labels: Labels | None

    def fraction(self, share: float, *, seed: int) -> Part:
        """A share of every class, chosen by the seed."""
        labels = self.labels
        values = None if labels is None else labels.values
        ids = stratified(values, len(self.source), fraction=share, seed=seed)
        return Part(self.source.subset(ids), labels and Labels(labels.values[ids], labels.names))


@dataclass(frozen=True)
class Dataset:
    name: str
    train: Part
    test: Part | None
    statistics: Statistics
    """Mean and deviation of each channel, in [0, 1]."""

    @property
    def size(self) -> int:
        return self.train.source.size
