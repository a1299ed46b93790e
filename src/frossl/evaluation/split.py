"""Which labelled images are learned from and which are tested on, and how sure a share of them is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from frossl.data import Dataset, Source, held_out
from frossl.errors import InputError

Z95 = 1.96


@dataclass(frozen=True)
class Score:
    """An accuracy in percent and its standard deviation: over draws, or binomial over the test images."""

    percent: float
    deviation: float
    images: int
    """That were tested on."""
    draws: int = 1
    top5: float | None = None
    """Percent among the five that are thought of first, where there are more classes."""
    right: Tensor | None = field(default=None, compare=False, repr=False)
    """bool (N,), image by image; None over several draws."""

    @classmethod
    def of(cls, right: Tensor, *, top5: Tensor | None = None) -> Score:
        """right: bool (N,), or (N, 5) in `top5`."""
        if not len(right):
            raise InputError("no image is left to test on; check that they can be read (frossl check)")
        share = right.double().mean().item()
        deviation = 100 * math.sqrt(share * (1 - share) / len(right))
        among = None if top5 is None else 100 * top5.any(1).double().mean().item()
        return cls(100 * share, deviation, len(right), top5=among, right=right)

    @classmethod
    def of_ranked(cls, votes: Tensor, labels: Tensor) -> Score:
        """From votes (N, K) for each class."""
        first = votes.topk(min(5, votes.shape[1]), dim=1).indices == labels[:, None]
        return cls.of(first[:, 0], top5=first if votes.shape[1] > 5 else None)

    @classmethod
    def over(cls, draws: Sequence[Score]) -> Score:
        """The mean over several draws of what was learned from, and the deviation between them."""
        percents = [score.percent for score in draws]
        deviation = statistics.stdev(percents) if len(draws) > 1 else draws[0].deviation
        return cls(statistics.fmean(percents), deviation, draws[0].images, len(draws))

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence: Wilson's for a count; over draws, their mean's error and the count's together."""
        share, n = self.percent / 100, self.images
        if self.draws == 1:
            center = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
            half = Z95 / (1 + Z95**2 / n) * math.sqrt(share * (1 - share) / n + (Z95 / (2 * n)) ** 2)
        else:
            error = math.hypot(
                self.deviation / 100 / math.sqrt(self.draws), math.sqrt(share * (1 - share) / n)
            )
            center, half = share, Z95 * error
        return 100 * max(0.0, center - half), 100 * min(1.0, center + half)

    def __str__(self) -> str:
        return f"{self.percent:.1f} ± {self.deviation:.1f}"


@dataclass(frozen=True)
class Labelled:
    """Images by id, with their labels."""

    source: Source
    ids: Tensor
    labels: Tensor

    def at_most(self, images: int) -> Labelled:
        """All of them, or so many, chosen by a fixed seed."""
        if len(self.ids) <= images:
            return self
        generator = torch.Generator().manual_seed(0)
        return self.among(torch.randperm(len(self.ids), generator=generator)[:images].sort().values)

    def among(self, chosen: Tensor) -> Labelled:
        return Labelled(self.source, self.ids[chosen], self.labels[chosen])


@dataclass(frozen=True)
class Split:
    """Labelled images to learn from (the bank) and to be tested on."""

    bank: Labelled
    test: Labelled
    note: str
    """Where the test images come from, to be said aloud."""

    @property
    def classes(self) -> int:
        return int(self.bank.labels.max()) + 1

    @property
    def smallest_class(self) -> int:
        """Images to learn from of the class that has fewest."""
        return int(self.bank.labels.unique(return_counts=True)[1].min())


def labelled_split(data: Dataset) -> Split:
    """The data set's own test part; without one, 20% of the labelled images, chosen by a hash of their id."""
    labels = data.train.labels
    if labels is None:
        raise InputError(
            f"{data.name} has no labels; put the images in one folder per class to measure accuracy"
        )
    train, values = data.train.source, labels.values
    if data.test is not None and data.test.labels is not None:
        others = data.test.labels.values
        bank = _labelled(train, values, values >= 0)
        test = _labelled(data.test.source, others, others >= 0)
        note = "tested on the data set's own test part"
    else:
        chosen = held_out(values)
        bank, test = _labelled(train, values, ~chosen), _labelled(train, values, chosen)
        note = "tested on 20% of the labelled images, held out by a hash (seen in training, unlabelled)"
    classes = len(bank.labels.unique())
    if classes < 2 or not len(test.ids):
        raise InputError(
            f"{data.name} leaves {classes} classes to learn from and {len(test.ids)} images to test on; "
            "give at least two classes with several images each"
        )
    if strange := sorted(set(test.labels.tolist()) - set(bank.labels.tolist())):
        named = ", ".join(repr(labels.names[i]) for i in strange[:3])
        raise InputError(
            f"{data.name} has {len(strange)} classes to test on that nobody could learn ({named}); "
            "give the training part images of each, or take them out of the test part"
        )
    return Split(bank, test, note)


def _labelled(source: Source, values: Tensor, chosen: Tensor) -> Labelled:
    ids = (chosen & (values >= 0)).nonzero()[:, 0]
    return Labelled(source, ids, values[ids])
