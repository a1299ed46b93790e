"""Difference of two scores, with its confidence interval."""

from __future__ import annotations

from dataclasses import dataclass

from frossl.evaluation.split import Score
from frossl.intervals import paired_interval, unpaired_interval


@dataclass(frozen=True)
class Difference:
    """Difference of two accuracies."""

    points: float
    """Difference in percentage points."""
    interval: tuple[float, float]
    """95% confidence interval: paired where both scores have results per image, else of two samples."""

    @classmethod
    def between(cls, first: Score, second: Score) -> Difference:
        """Return first − second, both measured on the same test images in the same order."""
        points = first.percent - second.percent
        if first.right is None or second.right is None or len(first.right) != len(second.right):
            return cls(
                points, unpaired_interval(first.percent, first.interval, second.percent, second.interval)
            )
        gained, lost = (first.right & ~second.right).sum(), (second.right & ~first.right).sum()
        return cls(points, paired_interval(len(first.right), int(gained), int(lost)))
