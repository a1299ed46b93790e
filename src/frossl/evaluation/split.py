"""Labelled train/test splits, and accuracies with their confidence intervals."""

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

OWN_TEST_SPLIT = "own test part"
"""Kind of a split whose test images are those of the data set."""
HASH_SPLIT = "hash"
"""Kind of a split by a hash of the image ids, in a data set without exact copies."""
HASH_SPLIT_GROUPED = "hash, copies together"
"""Kind of a split by a hash that keeps exact copies on one side; version 0.1.0 had `HASH_SPLIT` for both."""
MAX_COPY_CHECK_IMAGES = 100_000
"""Largest number of images for which every evaluation looks for copies between train and test split."""


@dataclass(frozen=True)
class Score:
    """Accuracy with its spread and confidence interval."""

    percent: float
    """Accuracy in percent."""
    deviation: float
    """Standard deviation in percent: between draws, or binomial over the test images."""
    images: int
    """Number of test images."""
    draws: int = 1
    """Number of draws of the training labels that the accuracy is the mean of."""
    top5: float | None = None
    """Top-5 accuracy in percent; None with five classes or fewer."""
    right: Tensor | None = field(default=None, compare=False, repr=False)
    """Correctness per test image, bool (N,); None over several draws."""

    @classmethod
    def of(cls, right: Tensor, *, top5: Tensor | None = None) -> Score:
        """Create a score from correctness per image.

        Args:
            right: Whether the prediction is correct, bool (N,).
            top5: Whether each of the five best guesses is correct, bool (N, 5).

        Raises:
            InputError: If there is no image.
        """
        if not len(right):
            raise InputError("no image is left to test on; check that they can be read (frossl check)")
        accuracy = right.double().mean().item()
        deviation = 100 * math.sqrt(accuracy * (1 - accuracy) / len(right))
        percent5 = None if top5 is None else 100 * top5.any(1).double().mean().item()
        return cls(100 * accuracy, deviation, len(right), top5=percent5, right=right)

    @classmethod
    def of_ranked(cls, votes: Tensor, labels: Tensor, classes: Tensor | None = None) -> Score:
        """Create a score from votes, logits or probabilities.

        Args:
            votes: Votes for each class (N, K).
            labels: True labels (N,).
            classes: Labels (K,) of the columns; 0 to K − 1 by default. An image whose class has no column
                counts as wrong.
        """
        columns = votes.topk(min(5, votes.shape[1]), dim=1).indices
        correct = (columns if classes is None else classes[columns]) == labels[:, None]
        return cls.of(correct[:, 0], top5=correct if votes.shape[1] > 5 else None)

    @classmethod
    def over(cls, draws: Sequence[Score]) -> Score:
        """Return the mean of scores over draws of the training labels, and the deviation between them."""
        percents = [score.percent for score in draws]
        deviation = statistics.stdev(percents) if len(draws) > 1 else draws[0].deviation
        return cls(statistics.fmean(percents), deviation, draws[0].images, len(draws))

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval in percent (Wilson); over draws, with the standard error of their mean."""
        between = self.deviation / 100 / math.sqrt(self.draws) if self.draws > 1 else 0.0
        low, high = wilson(self.percent / 100, self.images, between=between)
        return 100 * low, 100 * high

    @property
    def error(self) -> float:
        """Standard error in percent, derived from the interval: positive at 0% and 100%, too."""
        low, high = self.interval
        return (high - low) / (2 * Z95)

    def __str__(self) -> str:
        return f"{self.percent:.1f} ± {self.deviation:.1f}"


@dataclass(frozen=True)
class Labelled:
    """Images of a source, selected by id, with their labels."""

    source: Source
    ids: Tensor
    """Ids (N,) in the source."""
    labels: Tensor
    """Labels (N,)."""

    def at_most(self, images: int) -> Labelled:
        """Return these images, or a subset of `images` of them drawn with a fixed seed if there are more."""
        if len(self.ids) <= images:
            return self
        generator = torch.Generator().manual_seed(0)
        return self.subset(torch.randperm(len(self.ids), generator=generator)[:images].sort().values)

    def subset(self, chosen: Tensor) -> Labelled:
        """Return the images at the positions `chosen`."""
        return Labelled(self.source, self.ids[chosen], self.labels[chosen])


@dataclass(frozen=True)
class EvalSplit:
    """Labelled images to train on and to test on."""

    train: Labelled
    test: Labelled
    note: str
    """Origin of the test images, for reports."""
    kind: str = OWN_TEST_SPLIT
    """Way the test images were chosen; accuracies on splits of different kinds are not comparable."""
    copies: int = 0
    """Number of exact copies: test images that copy a training image if the data set has a test split, else
    labelled images that copy an earlier one."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.train.labels.max()) + 1

    @property
    def smallest_class(self) -> int:
        """Number of training images of the smallest class."""
        return int(self.train.labels.unique(return_counts=True)[1].min())


def labelled_split(data: Dataset, *, tested_on: str = "the data set's own test part") -> EvalSplit:
    """Split the labelled images of a data set into train and test.

    The test images are the data set's own test split. Without one, 20% of the labelled images are held out by
    a hash of their id, with exact copies on the same side. Copies between the data set's own train and test
    split are counted, not removed.

    Args:
        data: The data set.
        tested_on: Name of the data set's own test split in the note.

    Raises:
        InputError: If there are no labels, fewer than two classes to train on, no test image, or test classes
            without a training image.
    """
    labels = data.train.labels
    if labels is None:
        raise InputError(
            f"{data.name} has no labels; put the images in one folder per class to measure accuracy"
        )
    source, values = data.train.source, labels.values
    labelled = _labelled(source, values, values >= 0)
    if data.test is not None and data.test.labels is not None:
        test_values = data.test.labels.values
        train, test = labelled, _labelled(data.test.source, test_values, test_values >= 0)
        kind, copies, note = OWN_TEST_SPLIT, _copies_across(train, test), f"tested on {tested_on}"
        if copies:
            note += f" ({copies:,} of its images are exact copies of images to learn from: frossl check)"
    else:
        (groups,) = copies_within((source, labelled.ids))
        copies = len(groups) - len(groups.unique())
        kind = HASH_SPLIT_GROUPED if copies else HASH_SPLIT
        chosen = held_out(values, copies=torch.zeros_like(values).index_copy(0, labelled.ids, groups))
        train, test = _labelled(source, values, ~chosen), _labelled(source, values, chosen)
        note = "tested on 20% of the labelled images, held out by a hash (seen in training, unlabelled"
        note += f"; {copies:,} exact copies are on the side of the image they copy)" if copies else ")"
    classes = len(train.labels.unique())
    if classes < 2 or not len(test.ids):
        raise InputError(
            f"{data.name} leaves {classes} classes to learn from and {len(test.ids)} images to test on; "
            "give at least two classes with several different images each"
        )
    if untrained := sorted(set(test.labels.tolist()) - set(train.labels.tolist())):
        named = ", ".join(repr(labels.names[i]) for i in untrained[:3])
        raise InputError(
            f"{data.name} has {len(untrained)} test classes without training images ({named}); "
            "give the training part images of each, or take them out of the test part"
        )
    return EvalSplit(train, test, note, kind, copies)


def _copies_across(train: Labelled, test: Labelled) -> int:
    """Count test images that are exact copies of training images.

    Return 0 for large data sets, where the comparison would delay every evaluation; `frossl check` has no
    such limit.
    """
    if len(train.ids) + len(test.ids) > MAX_COPY_CHECK_IMAGES:
        return 0
    train_groups, test_groups = copies_within((train.source, train.ids), (test.source, test.ids))
    return int(torch.isin(test_groups, train_groups).sum())


def _labelled(source: Source, values: Tensor, chosen: Tensor) -> Labelled:
    ids = (chosen & (values >= 0)).nonzero()[:, 0]
    return Labelled(source, ids, values[ids])
