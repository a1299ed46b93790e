"""Augmentation by compiled loops on a CPU: all operations of a view while its pixels are in the cache.

Views equal those of the torch kernel to 5e-4 in [0, 1] (the taps of a blur end at three standard deviations).
numba compiles this module on first use, in a few seconds, and caches the result. Only loops along the
contiguous axis become vector instructions, so a resize along columns is done along rows of the transpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frossl.augment.photometry import LUMA, UNCHANGED
from frossl.augment.plan import Plan
from frossl.config import ViewSpec
from frossl.machine import cores

Floats = NDArray[np.float32]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function with numba, without the GIL.

    Sums may be reordered and multiplications fused with additions; NaN and infinity are respected.
    """
    options = {"nogil": True, "cache": True, "error_model": "numpy"}
    loops: Function = numba.njit(fastmath={"contract", "nsz", "arcp", "reassoc"}, **options)(function)
    return loops


# float32, because Python floats would widen the arithmetic in compiled loops to float64
ZERO, ONE = np.float32(0), np.float32(1)
LUMA_R, LUMA_G, LUMA_B = (np.float32(weight) for weight in LUMA)
SOLARIZE_THRESHOLD = np.float32(128 / 255)
NO_FACTOR, NO_SHIFT = UNCHANGED[0], UNCHANGED[3]
"""Amounts of a jitter that leave an image unchanged: a factor, and a hue shift."""
ROW_PADDING = 8
"""Elements added to each row: rows of a power of two bytes would share few cache sets when transposed."""
COMPILED = ("flip", "jitter", "gray", "blur", "solarize")
"""Operations that have a compiled form here, in the order of the parameters of `_make_range`."""
PIXELS_PER_TASK = 100_000
"""Pixels of views in a task of a thread, about a millisecond; small tasks balance views of unequal cost."""


@lru_cache(maxsize=1)
def _thread_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores().workers, thread_name_prefix="views")


def fused_views(
    images: Tensor, spec: ViewSpec, chosen: Plan, *, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Make standardized views with the parameters of a plan, on as many threads as torch has.

    Args:
        images: uint8 (N, 3, H, W) on a CPU; no crop reaches into the padding of smaller ones.
        spec: Size and interpolation of the views.
        chosen: Parameters of V·N views, in the order (view, image).
        mean: Mean of each channel, for values in [0, 1].
        std: Standard deviation of each channel.

    Returns:
        Views (V, N, 3, S, S), float32.
    """
    N, C, P, size = *images.shape[:2], len(chosen.box), spec.size
    out = np.empty((P, C, size, size), np.float32)  # numpy requests large pages: fewer page faults
    source = images.contiguous().numpy()
    moments = [np.array(mean, np.float32), 1 / np.array(std, np.float32)]
    arguments: list[Any] = [chosen.box.numpy()]
    arguments += [part.numpy() for name in COMPILED for part in chosen.parameters[name]]
    arguments += [spec.interpolation == "bicubic", *moments, out]
    longest = int(chosen.box[:, 2:].max())
    taps = 4 * math.ceil((4 * max(1.0, longest / size) + 2) / 4)
    views_per_task = max(1, PIXELS_PER_TASK // size**2)
    starts = iter(range(0, P, views_per_task))

    def make() -> None:
        H, W = images.shape[-2:]
        scratch = [
            np.empty((2, size, taps), np.float32),
            np.empty((2, 2, size), np.int64),
            np.empty((W, H + ROW_PADDING), np.uint8),
            np.empty((size, H + ROW_PADDING), np.float32),
            np.empty((H, size + ROW_PADDING), np.float32),
            np.empty((C, size, size), np.float32),
            np.empty(size + 1, np.float32),
            np.empty(3 * size, np.float32),
        ]
        for start in starts:
            _make_range(source, start, min(start + views_per_task, P), *arguments, *scratch)

    futures = [
        _thread_pool().submit(make)
        for _ in range(min(torch.get_num_threads(), len(range(0, P, views_per_task))) - 1)
    ]
    make()
    for future in futures:
        future.result()
    return torch.from_numpy(out).view(-1, N, C, size, size)


@compiled
def _weights(length: int, cubic: bool, weights: Floats, places: NDArray[np.int64]) -> None:
    """Compute for each output pixel its first and last source pixel and the weights of those between."""
    size = weights.shape[0]
    scale = length / size
    wide = max(scale, 1.0)
    reach = (2.0 if cubic else 1.0) * wide
    for i in range(size):
        center = (i + 0.5) * scale
        low, high = max(0, int(center - reach + 0.5)), min(length, int(center + reach + 0.5))
        total = 0.0
        for k in range(low, high):
            x = abs((k + 0.5 - center) / wide)
            if not cubic:
                value = max(0.0, 1.0 - x)
            elif x < 1.0:
                value = (1.5 * x - 2.5) * x * x + 1.0
            elif x < 2.0:
                value = ((x - 5.0) * x + 8.0) * x * -0.5 + 2.0
            else:
                value = 0.0
            weights[i, k - low] = value
            total += value
        for k in range(high - low):
            weights[i, k] /= total
        weights[i, high - low :] = 0
        places[0, i], places[1, i] = low, high - 1


@compiled
def _transpose(source, top, left, rows, columns, out):  # type: ignore[no-untyped-def]
    """Transpose a block, four rows at a time, so that writes to a column are one vector."""
    whole = rows - rows % 4
    for i in range(0, whole, 4):
        y = top + i
        a, b, c, d = source[y], source[y + 1], source[y + 2], source[y + 3]
        for j in range(columns):
            x = left + j
            out[j, i] = a[x]
            out[j, i + 1] = b[x]
            out[j, i + 2] = c[x]
            out[j, i + 3] = d[x]
    for i in range(whole, rows):
        for j in range(columns):
            out[j, i] = source[top + i, left + j]


@compiled
def _combine(pixels, first, last, weights, scale, row):  # type: ignore[no-untyped-def]
    """Compute row = scale · Σ_k weights[k] · pixels[first + k], with zero weights beyond the last pixel.

    Four terms are added at a time, because writing costs more than adding.
    """
    for k in range(0, len(weights), 4):
        a, b, c, d = (
            weights[k] * scale,
            weights[k + 1] * scale,
            weights[k + 2] * scale,
            weights[k + 3] * scale,
        )
        start = first + k
        if k > 0 and start > last:
            break
        p, q = pixels[min(start, last)], pixels[min(start + 1, last)]
        r, s = pixels[min(start + 2, last)], pixels[min(start + 3, last)]
        for x in range(len(row)):
            part = a * np.float32(p[x]) + b * np.float32(q[x]) + c * np.float32(r[x]) + d * np.float32(s[x])
            row[x] = part if k == 0 else row[x] + part


@compiled
def _resize(image, box, flip, cubic, weights, places, transposed, wide, tall, out):  # type: ignore[no-untyped-def]
    """Resize a crop to (C, y, x) in [0, 1].

    The crop is transposed, so that combining its columns is combining rows; the result is transposed back and
    its rows are combined.
    """
    top, left, height, width = box
    size, scale = out.shape[1], np.float32(1 / 255)
    _weights(width, cubic, weights[0], places[0])
    _weights(height, cubic, weights[1], places[1])
    for c in range(image.shape[0]):
        _transpose(image[c], top, left, height, width, transposed)
        for x in range(size):
            row = wide[size - 1 - x if flip else x, :height]
            _combine(transposed, places[0, 0, x], places[0, 1, x], weights[0, x], scale, row)
        _transpose(wide, 0, 0, size, height, tall)
        for y in range(size):
            row = out[c, y]
            _combine(tall, places[1, 0, y], places[1, 1, y], weights[1, y], ONE, row)
            for x in range(size):
                row[x] = min(max(row[x], ZERO), ONE)


@compiled
def _brightness(view: Floats, factor: float) -> None:
    for c in range(3):
        plane = view[c]
        for i in range(plane.size):
            plane[i] = min(max(plane[i] * factor, ZERO), ONE)


@compiled
def _contrast(view: Floats, factor: float) -> None:
    r, g, b = view[0], view[1], view[2]
    total = ZERO
    for i in range(r.size):
        total += LUMA_R * r[i] + LUMA_G * g[i] + LUMA_B * b[i]
    rest = (ONE - factor) * total / np.float32(r.size)
    for c in range(3):
        plane = view[c]
        for i in range(plane.size):
            plane[i] = min(max(plane[i] * factor + rest, ZERO), ONE)


@compiled
def _saturation(view: Floats, factor: float) -> None:
    r, g, b = view[0], view[1], view[2]
    for i in range(r.size):
        rest = (ONE - factor) * (LUMA_R * r[i] + LUMA_G * g[i] + LUMA_B * b[i])
        r[i] = min(max(r[i] * factor + rest, ZERO), ONE)
        g[i] = min(max(g[i] * factor + rest, ZERO), ONE)
        b[i] = min(max(b[i] * factor + rest, ZERO), ONE)


@compiled
def _tent(place: Any) -> Any:
    """Return the tent function of a hue, in sixths of the circle."""
    six = np.float32(6)
    place = place - six * np.floor(place * (ONE / six))
    return min(max(min(place, np.float32(4) - place), ZERO), ONE)


@compiled
def _hue(view: Floats, shift: float) -> None:
    r, g, b = view[0], view[1], view[2]
    turn = shift * np.float32(6)
    for i in range(r.size):
        x, y, z = r[i], g[i], b[i]
        value = max(x, max(y, z))
        chroma = value - min(x, min(y, z))
        inverse = ONE / (chroma if chroma > ZERO else ONE)
        last = (x - y) * inverse + np.float32(4)
        second = (z - x) * inverse + np.float32(2)
        sector = (y - z) * inverse if value == x else (second if value == y else last)
        sector += turn
        r[i] = value - chroma * _tent(sector + np.float32(5))
        g[i] = value - chroma * _tent(sector + np.float32(3))
        b[i] = value - chroma * _tent(sector + ONE)


@compiled
def _gray(view: Floats) -> None:
    r, g, b = view[0], view[1], view[2]
    for i in range(r.size):
        luma = LUMA_R * r[i] + LUMA_G * g[i] + LUMA_B * b[i]
        r[i] = luma
        g[i] = luma
        b[i] = luma


@compiled
def _gauss(sigma: float, most: int, taps: Floats) -> int:
    """Write the Gaussian weights at distance 0, 1, … on one side, then zeros; return the radius."""
    radius = min(math.ceil(3 * sigma), most)
    total = 0.0
    for k in range(radius + 1):
        taps[k] = math.exp(-0.5 * (k / sigma) ** 2)
        total += taps[k] if k == 0 else 2 * taps[k]
    for k in range(radius + 1):
        taps[k] /= total
    taps[radius + 1 :] = 0
    return radius


@compiled
def _blurred_row(plane, y, taps, radius, padded, out):  # type: ignore[no-untyped-def]
    """Blur one row, along columns and then along itself, with reflected edges, two distances at a time."""
    size = len(out)
    row, center, edge = padded[radius : radius + size], plane[y], size - 1
    for x in range(size):
        row[x] = taps[0] * center[x]
    for k in range(1, radius + 1, 2):
        far = min(k + 1, radius)
        a, b = plane[abs(y - k)], plane[edge - abs(edge - y - k)]
        c, d = plane[abs(y - far)], plane[edge - abs(edge - y - far)]
        near, next_weight = taps[k], taps[k + 1]
        for x in range(size):
            row[x] += near * (a[x] + b[x]) + next_weight * (c[x] + d[x])
    for k in range(1, radius + 1):
        row_start, row_end = radius, radius + edge
        padded[row_start - k], padded[row_end + k] = padded[row_start + k], padded[row_end - k]
    for x in range(size):
        out[x] = taps[0] * row[x]
    for k in range(1, radius + 1, 2):
        far = min(k + 1, radius)
        a, b = padded[radius - k : radius - k + size], padded[radius + k : radius + k + size]
        c, d = padded[radius - far : radius - far + size], padded[radius + far : radius + far + size]
        near, next_weight = taps[k], taps[k + 1]
        for x in range(size):
            out[x] += near * (a[x] + b[x]) + next_weight * (c[x] + d[x])


@compiled
def _make_range(  # type: ignore[no-untyped-def]
    images, start, stop, box, flip, jitter, order, gray, sigma, solarize, cubic, mean, inverse_std, out,
    weights, places, transposed, wide, tall, view, taps, padded,
):  # fmt: skip
    size, count = out.shape[2], images.shape[0]
    for p in range(start, stop):
        radius = _gauss(sigma[p], size - 1, taps) if sigma[p] > 0 else 0
        work = view if radius else out[p]  # a blur cannot work in place
        _resize(images[p % count], box[p], flip[p], cubic, weights, places, transposed, wide, tall, work)
        flat = work.reshape(3, size * size)
        for place in range(4):
            which = order[p, place]
            amount = jitter[p, which]
            if which == 0 and amount != NO_FACTOR:
                _brightness(flat, amount)
            elif which == 1 and amount != NO_FACTOR:
                _contrast(flat, amount)
            elif which == 2 and amount != NO_FACTOR:
                _saturation(flat, amount)
            elif which == 3 and amount != NO_SHIFT:
                _hue(flat, amount)
        if gray[p]:
            _gray(flat)
        for c in range(3):
            for y in range(size):
                row = out[p, c, y]
                if radius:
                    _blurred_row(view[c], y, taps, radius, padded, row)
                if solarize[p]:
                    for x in range(size):
                        row[x] = ONE - row[x] if row[x] >= SOLARIZE_THRESHOLD else row[x]
                for x in range(size):
                    row[x] = (row[x] - mean[c]) * inverse_std[c]
