"""How sure a share of right answers is. No torch, so that reports can ask, too."""

from __future__ import annotations

import math

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
