"""Data sets and their splits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from frossl.data.labels import Labels, stratified
from frossl.data.sources import Source
from frossl.errors import InputError

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, of pixels in [0, 1]."""

IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10: Statistics = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
STL10: Statistics = ((0.4914, 0.4823, 0.4466), (0.247, 0.243, 0.261))
FASHION_MNIST: Statistics = ((0.2860,), (0.3530,))
CIFAR100: Statistics = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


@dataclass(frozen=True)
class Split:
    """Images of a data set for training or for testing, and their labels."""

    source: Source
    """Images of the split."""
    labels: Labels | None
    """Labels by id; None if there are none."""

    def fraction(self, share: float, *, seed: int) -> Split:
        """Return a stratified sample of the split.

        Args:
            share: Share of every class that is kept.
            seed: Seed that selects the images.
        """
        labels = self.labels
        values = None if labels is None else labels.values
        ids = stratified(values, len(self.source), fraction=share, seed=seed)
        return Split(self.source.subset(ids), labels and Labels(labels.values[ids], labels.names))


@dataclass(frozen=True)
class Dataset:
    """Data set: a train split, and optionally a test split."""

    name: str
    """Name or path by which the data set was opened."""
    train: Split
    """Images to train on."""
    test: Split | None
    """Images to test on; None if there are none."""
    statistics: Statistics
    """Mean and standard deviation of each channel, of pixels in [0, 1], for normalization."""

    @property
    def size(self) -> int:
        """Pixels along the shorter side of the training images."""
        return self.train.source.size


def with_test(data: Dataset, other: Dataset) -> Dataset:
    """Return a data set with the images of another as its test split.

    Args:
        data: Data set to train on, with labels.
        other: Data set whose train split becomes the test split; its classes are matched by name.
    """
    labels, others = data.train.labels, other.train.labels
    if labels is None or others is None:
        raise InputError(f"{(other if labels else data).name} has no labels; put its images in class folders")
    names = (*labels.names, *(name for name in others.names if name not in labels.names))
    number = torch.tensor([names.index(name) for name in others.names])
    values = torch.where(others.values >= 0, number[others.values.clamp_min(0)], -1)
    train = Split(data.train.source, Labels(labels.values, names))
    return Dataset(
        f"{data.name}, tested on {other.name}",
        train,
        Split(other.train.source, Labels(values, names)),
        data.statistics,
    )
