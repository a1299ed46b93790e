"""Is one encoder better than another? The difference of two scores, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass

from frossl.evaluation.split import Score
from frossl.intervals import paired_interval, unpaired_interval


@dataclass(frozen=True)
class Difference:
    """Of two accuracies, in points of percent."""

    points: float
    interval: tuple[float, float]
    """95% confidence: that of paired results where both scores have them, else that of two samples."""

    @classmethod
    def between(cls, first: Score, second: Score) -> Difference:
        """first − second, of the same test images in the same order."""
        points = first.percent - second.percent
        if first.right is None or second.right is None or len(first.right) != len(second.right):
            return cls(
                points, unpaired_interval(first.percent, first.interval, second.percent, second.interval)
            )
        gained, lost = (first.right & ~second.right).sum(), (second.right & ~first.right).sum()
        return cls(points, paired_interval(len(first.right), int(gained), int(lost)))
