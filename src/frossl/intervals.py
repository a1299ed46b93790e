"""Confidence intervals of an accuracy and of the difference of two. No torch, so that reports import it."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.96
"""Standard errors on each side of a 95% interval."""


def wilson(share: float, images: int, *, between: float = 0.0) -> tuple[float, float]:
    """Return Wilson's 95% interval of an accuracy; unlike Wald's, it has a width at 0 and 1.

    The bounds are the solutions p of (share − p)² = 1.96² (p (1 − p) / images + between²).

    Args:
        share: Accuracy, from 0 to 1.
        images: Number of test images.
        between: Standard error of the accuracy from other causes than the number of test images, such as
            different draws of the training images.
    """
    wide = 1 + Z95**2 / images
    center = (share + Z95**2 / (2 * images)) / wide
    spread = share * (1 - share) / images + (Z95 / (2 * images)) ** 2 + wide * between**2
    half = Z95 * math.sqrt(spread) / wide
    return max(0.0, center - half), min(1.0, center + half)


def paired_interval(images: int, gained: int, lost: int) -> tuple[float, float]:
    """Return the 95% interval of the difference of two accuracies on the same images, in percentage points.

    It is Wald's interval with half an image added to each cell of the two-by-two table (Agresti and Min,
    2005), so it has a width even if nothing was gained or lost, and covers 95% from a few dozen images on.

    Args:
        images: Number of test images.
        gained: Number of images that only the first classifier gets right.
        lost: Number of images that only the second classifier gets right.
    """
    n, b, c = images + 2, gained + 0.5, lost + 0.5
    center, half = (b - c) / n, Z95 * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return 100 * max(-1.0, center - half), 100 * min(1.0, center + half)


def unpaired_interval(
    first: float, of_first: Sequence[float], second: float, of_second: Sequence[float]
) -> tuple[float, float]:
    """Return the 95% interval of the difference of two accuracies on different images.

    It is computed from the interval of each (Newcombe, 1998, method 10). For accuracies on the same images it
    is wider than necessary. All numbers have the same unit, such as percent.

    Args:
        first: First accuracy.
        of_first: 95% interval of the first accuracy, as (low, high).
        second: Second accuracy.
        of_second: 95% interval of the second accuracy, as (low, high).
    """
    difference = first - second
    return (
        difference - math.hypot(first - of_first[0], of_second[1] - second),
        difference + math.hypot(of_first[1] - first, second - of_second[0]),
    )
