"""How sure a share of right answers, or a difference of two, is. No torch, so that reports can ask, too."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.96
"""Standard errors on each side of a 95% interval."""


def wilson(share: float, images: int, *, between: float = 0.0) -> tuple[float, float]:
    """95% confidence for a share of `images` that are right: Wilson's interval, which has a width at 0 and 1.

    between: standard error of the share from anything besides the count, such as the draws of what was
    learned from. The ends are where (share − p)² = 1.96² (p (1 − p) / images + between²).
    """
    wide = 1 + Z95**2 / images
    center = (share + Z95**2 / (2 * images)) / wide
    spread = share * (1 - share) / images + (Z95 / (2 * images)) ** 2 + wide * between**2
    half = Z95 * math.sqrt(spread) / wide
    return max(0.0, center - half), min(1.0, center + half)


def paired_interval(images: int, gained: int, lost: int) -> tuple[float, float]:
    """95% interval, in points, of the difference of two accuracies on the same images.

    gained, lost: images that only the first gets right, and only the second. Wald's interval with half an
    image added to each cell of the table of two by two (Agresti and Min, 2005), which has a width where
    nothing was gained or lost, and covers 95% from a few dozen images on.
    """
    n, b, c = images + 2, gained + 0.5, lost + 0.5
    center, half = (b - c) / n, Z95 * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return 100 * max(-1.0, center - half), 100 * min(1.0, center + half)


def unpaired_interval(
    first: float, of_first: Sequence[float], second: float, of_second: Sequence[float]
) -> tuple[float, float]:
    """95% interval, in points, of the difference of two accuracies on different images, from the interval of
    each (Newcombe, 1998, method 10). For the same images it is wider than need be."""
    difference = first - second
    return (
        difference - math.hypot(first - of_first[0], of_second[1] - second),
        difference + math.hypot(of_first[1] - first, second - of_second[0]),
    )
