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
class Labelled:
    """Images by id, with their labels."""

    source: Source
    ids: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Split:
    """Labelled images to learn from (the bank) and to be tested on."""

    bank: Labelled
    test: Labelled
    note: str
    """Where the test images come from, to be said aloud."""


def labelled_split(data: Dataset) -> Split:
    """The data set's own test part; without one, 20% of the labelled images, chosen by a hash of their id."""
    labels = data.train.labels
    if labels is None:
        raise InputError(
            f"{data.name} has no labels; put the images in one folder per class to measure accuracy"
        )

    def labelled(source: Source, values: Tensor, chosen: Tensor) -> Labelled:
        ids = (chosen & (values >= 0)).nonzero()[:, 0]
        return Labelled(source, ids, values[ids])

    train, values = data.train.source, labels.values
    if data.test is not None and data.test.labels is not None:
        others = data.test.labels.values
        bank = labelled(train, values, values >= 0)
        test = labelled(data.test.source, others, others >= 0)
        note = "tested on the data set's own test part"
    else:
        chosen = held_out(values)
        bank, test = labelled(train, values, ~chosen), labelled(train, values, chosen)
        note = "tested on 20% of the labelled images, held out by a hash (seen in training, unlabelled)"
    classes = len(bank.labels.unique())
    if classes < 2 or not len(test.ids):
        raise InputError(
            f"{data.name} leaves {classes} classes to learn from and {len(test.ids)} images to test on; "
            "give at least two classes with several images each"
        )
    return Split(bank, test, note)
