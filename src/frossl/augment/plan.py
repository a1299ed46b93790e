"""Random parameters of the augmentation of each view, drawn before any pixel is processed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from frossl.augment.random import CROP_ATTEMPTS, Draw, uniforms
from frossl.config import ViewSpec
from frossl.types import Clock

UNCHANGED = (1.0, 1.0, 1.0, 0.0)
"""Amounts of brightness, contrast, saturation and hue that leave an image unchanged."""
ORDERS = tuple(itertools.permutations(range(4)))
"""Possible orders of brightness, contrast, saturation and hue."""


@dataclass(frozen=True)
class Plan:
    """Parameters of P = V·N views, flat in the order (view, image)."""

    box: Tensor
    """int64 (P, 4): top, left, height, width of the crop."""
    flip: Tensor
    """bool (P,): whether the view is flipped horizontally."""
    jitter: Tensor
    """float (P, 4): factors of brightness, contrast, saturation (1: unchanged), hue shift (0: unchanged)."""
    order: Tensor
    """int64 (P, 4): order in which the four adjustments of `jitter` are applied."""
    gray: Tensor
    """bool (P,): whether the view is converted to gray."""
    sigma: Tensor
    """float (P,): standard deviation of the blur in pixels of the view; 0 for none."""
    solarize: Tensor
    """bool (P,): whether the view is solarized."""

    def rows(self, which: slice) -> Plan:
        """Return the parameters of some of the views."""
        return Plan(*(getattr(self, part.name)[which] for part in fields(self)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Return a context in which torch uses one thread, for tensors as small as a plan.

    torch's other threads would busy-wait for milliseconds afterwards, on cores that are needed for the views
    (which took 1.6 times as long).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def plan(spec: ViewSpec, ids: Tensor, views: Tensor, clock: Clock, *, height: int, width: int) -> Plan:
    """Draw the parameters of views of images.

    The distribution equals that of torchvision's RandomResizedCrop, ColorJitter (random order),
    RandomGrayscale, GaussianBlur and RandomSolarize.

    Args:
        spec: Ranges and probabilities.
        ids: Ids of the N images.
        views: Numbers of the V views in the view set.
        clock: Seed and epoch.
        height: Height of the images in pixels.
        width: Width of the images in pixels.
    """
    u = uniforms(seed=clock.seed, epoch=clock.epoch, ids=ids, views=views).flatten(0, 1)  # (P, DRAWS)

    def between(draw: Draw, low: float, high: float) -> Tensor:
        return low + u[:, draw] * (high - low)

    def strength(draw: Draw, amount: float) -> Tensor:
        return between(draw, max(0.0, 1 - amount), 1 + amount)

    jittered = u[:, Draw.JITTER] < spec.jitter
    factors = torch.stack(
        [
            strength(Draw.BRIGHTNESS, spec.brightness),
            strength(Draw.CONTRAST, spec.contrast),
            strength(Draw.SATURATION, spec.saturation),
            between(Draw.HUE, -spec.hue, spec.hue),
        ],
        dim=1,
    )
    orders = torch.tensor(ORDERS, device=u.device)
    return Plan(
        box=_crop_boxes(spec, u, height=height, width=width),
        flip=u[:, Draw.FLIP] < spec.flip,
        jitter=torch.where(jittered[:, None], factors, factors.new_tensor(UNCHANGED)),
        order=orders[(u[:, Draw.ORDER] * len(ORDERS)).long()],
        gray=u[:, Draw.GRAY] < spec.gray,
        sigma=between(Draw.SIGMA, *spec.sigma) * (u[:, Draw.BLUR] < spec.blur),
        solarize=u[:, Draw.SOLARIZE] < spec.solarize,
    )


def _crop_boxes(spec: ViewSpec, u: Tensor, *, height: int, width: int) -> Tensor:
    """Draw ten crops of random area and ratio; return the first that fits, else the largest central crop."""
    area = spec.scale[0] + u[:, Draw.AREA : Draw.AREA + CROP_ATTEMPTS] * (spec.scale[1] - spec.scale[0])
    low, high = math.log(spec.ratio[0]), math.log(spec.ratio[1])
    ratio = torch.exp(low + u[:, Draw.RATIO : Draw.RATIO + CROP_ATTEMPTS] * (high - low))
    area = area * (height * width)
    w, h = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.long().argmax(1, keepdim=True)  # argmax gives the first of the largest
    w, h = w.gather(1, first)[:, 0], h.gather(1, first)[:, 0]
    top = (u[:, Draw.TOP] * (height - h + 1)).long()
    left = (u[:, Draw.LEFT] * (width - w + 1)).long()

    in_ratio = min(max(width / height, spec.ratio[0]), spec.ratio[1])
    central_w = min(width, max(1, round(height * in_ratio)))
    central_h = min(height, max(1, round(width / in_ratio)))
    central = torch.tensor(
        [(height - central_h) // 2, (width - central_w) // 2, central_h, central_w], device=u.device
    )
    return torch.where(fits.any(1)[:, None], torch.stack([top, left, h, w], dim=1), central)
