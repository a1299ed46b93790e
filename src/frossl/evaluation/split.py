"""Which labelled images are learned from and which are tested on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from frossl.data import Dataset, Source, held_out
from frossl.errors import InputError


@dataclass(frozen=True)
class Score:
    """An accuracy in percent and its standard deviation: over draws, or binomial over the test images."""

    percent: float
    deviation: float

    @classmethod
    def of(cls, right: Tensor) -> Score:
        share = right.double().mean().item()
        return cls(100 * share, 100 * math.sqrt(share * (1 - share) / len(right)))

    def __str__(self) -> str:
        return f"{self.percent:.1f} ± {self.deviation:.1f}"


@dataclass(frozen=True)
class LabelledSplit:
    """Labelled images to learn from (the bank) and to be tested on."""

    bank: Source
    bank_ids: Tensor
    bank_labels: Tensor
    test: Source
    test_ids: Tensor
    test_labels: Tensor
    names: tuple[str, ...]
    note: str
    """Where the test images come from, to be said aloud."""


def labelled_split(data: Dataset) -> LabelledSplit:
    """The data set's own test part; without one, 20% of the labelled images, chosen by a hash of their id."""
    labels = data.train.labels
    if labels is None:
        raise InputError(
            f"{data.name} has no labels; put the images in one folder per class to measure accuracy"
        )
    known = labels.values >= 0
    if data.test is not None and data.test.labels is not None:
        test_known = data.test.labels.values >= 0
        test_ids = test_known.nonzero()[:, 0]
        bank_ids, test_source, test_labels = known.nonzero()[:, 0], data.test.source, data.test.labels.values
        note = "the data set's own test part"
    else:
        chosen = held_out(labels.values)
        bank_ids, test_ids = (known & ~chosen).nonzero()[:, 0], (known & chosen).nonzero()[:, 0]
        test_source, test_labels = data.train.source, labels.values
        note = "20% of the labelled images, held out by a hash (the encoder has seen them, unlabelled)"
    bank_labels, test_labels = labels.values[bank_ids], test_labels[test_ids]
    classes = len(bank_labels.unique())
    if classes < 2 or not len(test_ids):
        raise InputError(
            f"{data.name} leaves {classes} classes to learn from and {len(test_ids)} images to test on; "
            "give at least two classes with several images each"
        )
    return LabelledSplit(
        data.train.source, bank_ids, bank_labels, test_source, test_ids, test_labels, labels.names, note
    )
