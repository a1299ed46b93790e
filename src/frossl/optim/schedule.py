"""Schedules as pure functions of the step: there is no state to save, and resuming is exact."""

from __future__ import annotations

import math


def cosine(step: float, *, total: int, start: float, end: float) -> float:
    """Return the value at `step` of half a cosine from `start` at step 0 to `end` at step `total`."""
    done = min(1.0, step / max(1, total))
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * done))


def linear(step: float, *, total: int, start: float, end: float) -> float:
    """Return the value at `step` of a line from `start` at step 0 to `end` at `total`, constant after."""
    return end if step >= total else start + (end - start) * step / total


def warmup_cosine(step: float, *, total: int, warmup: int, peak: float, floor: float = 0.0) -> float:
    """Return the learning rate at `step` of a linear warmup and a cosine decay.

    Args:
        step: Step, counted from 0.
        total: Step at which the rate is `floor`.
        warmup: Number of steps over which the rate rises linearly to `peak`.
        peak: Largest rate.
        floor: Last rate.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def warmup_stable_decay(
    step: float, *, total: int, warmup: int, decay: int, peak: float, floor: float = 0.0
) -> float:
    """Return the learning rate at `step` of a linear warmup, a constant phase and a linear decay.

    Args:
        step: Step, counted from 0.
        total: Step at which the rate is `floor`.
        warmup: Number of steps over which the rate rises linearly to `peak`.
        decay: Number of last steps over which the rate falls linearly to `floor`.
        peak: Largest rate.
        floor: Last rate.
    """
    rising = (step + 1) / max(1, warmup)
    falling = (total - step) / max(1, decay)
    return min(peak, peak * rising, floor + (peak - floor) * max(0.0, falling))
