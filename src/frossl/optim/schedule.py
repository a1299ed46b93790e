"""Schedules: pure functions of the step, so there is nothing to save and a resume is exact."""

from __future__ import annotations

import math


def warmup_cosine(step: int, *, total: int, warmup: int, peak: float, floor: float = 0.0) -> float:
    """Rise linearly to `peak` over `warmup` steps, then fall along a cosine to `floor` at step `total`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
