"""A data set: parts to learn from and to be tested on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from frossl.data.labels import Labels, stratified
from frossl.data.sources import Source
from frossl.errors import InputError

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


def with_test(data: Dataset, other: Dataset) -> Dataset:
    """`data`, tested on the images of `other`; classes are the same where their names are."""
    labels, others = data.train.labels, other.train.labels
    if labels is None or others is None:
        raise InputError(f"{(other if labels else data).name} has no labels; put its images in class folders")
    names = (*labels.names, *(name for name in others.names if name not in labels.names))
    number = torch.tensor([names.index(name) for name in others.names])
    values = torch.where(others.values >= 0, number[others.values.clamp_min(0)], -1)
    train = Part(data.train.source, Labels(labels.values, names))
    return Dataset(
        f"{data.name}, tested on {other.name}",
        train,
        Part(other.train.source, Labels(values, names)),
        data.statistics,
    )
