"""Random numbers as a pure function of (seed, epoch, id, view, index of the number): a counter-based hash.

Arithmetic is on integers until the last step, so every device gives the same numbers, whatever the batch,
worker, rank or order. The mixing step is the 64-bit finalizer of SplitMix64 (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


# constants of SplitMix64
GOLDEN = _signed(0x9E3779B97F4A7C15)
MULTIPLY_1 = _signed(0xBF58476D1CE4E5B9)
MULTIPLY_2 = _signed(0x94D049BB133111EB)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift logically: torch's `>>` copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """Scramble int64 (a bijection; multiplication wraps around)."""
    x = (x ^ _shift_right(x, 30)) * MULTIPLY_1
    x = (x ^ _shift_right(x, 27)) * MULTIPLY_2
    return x ^ _shift_right(x, 31)


def uniforms(*, seed: int, epoch: int, ids: Tensor, views: Tensor, count: int) -> Tensor:
    """Return the first random numbers of views of images. They are the same for every `count`.

    Args:
        seed: Seed of the run.
        epoch: Epoch, counted from 0.
        ids: Ids of the images, int64 (N,).
        views: Numbers of the views, int64 (V,).
        count: How many random numbers of each view.

    Returns:
        Numbers in [0, 1), float32 (V, N, count).
    """
    key = torch.tensor(seed, dtype=torch.int64, device=ids.device)
    for counter in (torch.full_like(key, epoch), ids[None, :, None], views.to(ids)[:, None, None]):
        key = mix(key * GOLDEN + GOLDEN) ^ counter
    draws = torch.arange(count, dtype=torch.int64, device=ids.device)
    bits = _shift_right(mix(mix(key * GOLDEN + GOLDEN) + draws * GOLDEN), 40)  # 24 bits: exact in float32
    return bits.float() / (1 << 24)


def stream(*, seed: int, epoch: int, id: int, view: int) -> int:
    """Return a 63-bit seed for random numbers of one view that another generator draws."""
    key = torch.tensor(seed, dtype=torch.int64)
    for counter in (epoch, id, view):
        key = mix(key * GOLDEN + GOLDEN) ^ counter
    return int(_shift_right(mix(key * GOLDEN + GOLDEN), 1))
