"""Which labelled images are learned from and which are tested on, and how sure a share of them is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from frossl.data import Dataset, Source, copies_within, held_out
from frossl.errors import InputError
from frossl.intervals import Z95, wilson

OWN, HASH, TOGETHER = "own test part", "hash", "hash, copies together"
"""Kinds of splits. Without copies, the last is the second: what version 0.1.0 had in place of both."""
MOST_COMPARED = 100_000
"""Images, up to which copies between a data set's own parts are looked for at every evaluation."""


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
    def of_ranked(cls, votes: Tensor, labels: Tensor, classes: Tensor | None = None) -> Score:
        """From votes (N, K) for each class. classes: (K,) labels that the columns stand for, 0 to K − 1 if
        not given; an image of a class that has no column is never right."""
        columns = votes.topk(min(5, votes.shape[1]), dim=1).indices
        first = (columns if classes is None else classes[columns]) == labels[:, None]
        return cls.of(first[:, 0], top5=first if votes.shape[1] > 5 else None)

    @classmethod
    def over(cls, draws: Sequence[Score]) -> Score:
        """The mean over several draws of what was learned from, and the deviation between them."""
        percents = [score.percent for score in draws]
        deviation = statistics.stdev(percents) if len(draws) > 1 else draws[0].deviation
        return cls(statistics.fmean(percents), deviation, draws[0].images, len(draws))

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence: Wilson's for a count; over draws, with the error of their mean besides."""
        between = self.deviation / 100 / math.sqrt(self.draws) if self.draws > 1 else 0.0
        low, high = wilson(self.percent / 100, self.images, between=between)
        return 100 * low, 100 * high

    @property
    def error(self) -> float:
        """Standard error in percent, from the interval: above 0 at 0 and 100 percent, too."""
        low, high = self.interval
        return (high - low) / (2 * Z95)

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
    kind: str = OWN
    """How they were chosen: figures of different kinds are not comparable."""
    copies: int = 0
    """Labelled images that are an exact copy of an earlier one; of an own test part, of one to learn from."""

    @property
    def classes(self) -> int:
        return int(self.bank.labels.max()) + 1

    @property
    def smallest_class(self) -> int:
        """Images to learn from of the class that has fewest."""
        return int(self.bank.labels.unique(return_counts=True)[1].min())


def labelled_split(data: Dataset, *, tested_on: str = "the data set's own test part") -> Split:
    """The data set's own test part; without one, 20% of the labelled images, chosen by a hash of their id,
    exact copies together. Copies between an own test part and the images to learn from are counted, and stay.

    tested_on: what the note calls the own test part.
    """
    labels = data.train.labels
    if labels is None:
        raise InputError(
            f"{data.name} has no labels; put the images in one folder per class to measure accuracy"
        )
    train, values = data.train.source, labels.values
    known = _labelled(train, values, values >= 0)
    if data.test is not None and data.test.labels is not None:
        others = data.test.labels.values
        bank, test = known, _labelled(data.test.source, others, others >= 0)
        kind, copies, note = OWN, _crossing(bank, test), f"tested on {tested_on}"
        if copies:
            note += f" ({copies:,} of its images are exact copies of images to learn from: frossl check)"
    else:
        (groups,) = copies_within((train, known.ids))
        copies = len(groups) - len(groups.unique())
        kind = TOGETHER if copies else HASH
        chosen = held_out(values, copies=torch.zeros_like(values).index_copy(0, known.ids, groups))
        bank, test = _labelled(train, values, ~chosen), _labelled(train, values, chosen)
        note = "tested on 20% of the labelled images, held out by a hash (seen in training, unlabelled"
        note += f"; {copies:,} exact copies are on the side of the image they copy)" if copies else ")"
    classes = len(bank.labels.unique())
    if classes < 2 or not len(test.ids):
        raise InputError(
            f"{data.name} leaves {classes} classes to learn from and {len(test.ids)} images to test on; "
            "give at least two classes with several different images each"
        )
    if strange := sorted(set(test.labels.tolist()) - set(bank.labels.tolist())):
        named = ", ".join(repr(labels.names[i]) for i in strange[:3])
        raise InputError(
            f"{data.name} has {len(strange)} classes to test on that nobody could learn ({named}); "
            "give the training part images of each, or take them out of the test part"
        )
    return Split(bank, test, note, kind, copies)


def _crossing(bank: Labelled, test: Labelled) -> int:
    """Images to be tested on that are exact copies of images to learn from. Of large data sets nobody waits
    for this: 0 is said then, and `frossl check` tells."""
    if len(bank.ids) + len(test.ids) > MOST_COMPARED:
        return 0
    learned, tested = copies_within((bank.source, bank.ids), (test.source, test.ids))
    return int(torch.isin(tested, learned).sum())


def _labelled(source: Source, values: Tensor, chosen: Tensor) -> Labelled:
    ids = (chosen & (values >= 0)).nonzero()[:, 0]
    return Labelled(source, ids, values[ids])
