"""Schedules: pure functions of the step, so there is nothing to save and a resume is exact."""

from __future__ import annotations

import math


def cosine(step: int, *, total: int, start: float, end: float) -> float:
    """From `start` at step 0 to `end` at step `total`, along half a cosine."""
    done = min(1.0, step / max(1, total))
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * done))


def linear(step: int, *, total: int, start: float, end: float) -> float:
    """From `start` at step 0 to `end` at step `total`, and there it stays."""
    return end if step >= total else start + (end - start) * step / total


def warmup_cosine(step: int, *, total: int, warmup: int, peak: float, floor: float = 0.0) -> float:
    """Rise linearly to `peak` over `warmup` steps, then fall along a cosine to `floor` at step `total`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def warmup_stable_decay(
    step: int, *, total: int, warmup: int, decay: int, peak: float, floor: float = 0.0
) -> float:
    """Rise linearly to `peak` over `warmup` steps, stay, fall linearly to `floor` over the last `decay`."""
    rising = (step + 1) / max(1, warmup)
    falling = (total - step) / max(1, decay)
    return min(peak, peak * rising, floor + (peak - floor) * max(0.0, falling))
