"""How sure a difference of two accuracies is. Plain numbers, no torch: reports weigh kept records, too."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.96


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
