"""What will be done to each view of each image, decided before any pixel is touched."""

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
ORDERS = tuple(itertools.permutations(range(4)))  # of brightness, contrast, saturation, hue


@dataclass(frozen=True)
class Plan:
    """Parameters of P = V·N views, flat in the order (view, image)."""

    box: Tensor
    """int64 (P, 4): top, left, height, width of the crop."""
    flip: Tensor
    """bool (P,)."""
    jitter: Tensor
    """float (P, 4): brightness, contrast, saturation factors (1 = as it is) and hue shift (0 = as it is)."""
    order: Tensor
    """int64 (P, 4): in which order these four are applied."""
    gray: Tensor
    """bool (P,)."""
    sigma: Tensor
    """float (P,): deviation of the blur in pixels of the view; 0 = none."""
    solarize: Tensor
    """bool (P,)."""

    def rows(self, which: slice) -> Plan:
        """Those of some of the views."""
        return Plan(*(getattr(self, part.name)[which] for part in fields(self)))


@contextmanager
def one_thread() -> Iterator[None]:
    """For tensors as small as a plan. torch's other threads would wait in a loop for milliseconds afterwards,
    on cores that are needed for the views (which took 1.6 times as long)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def plan(spec: ViewSpec, ids: Tensor, views: Tensor, clock: Clock, *, height: int, width: int) -> Plan:
    """Draw the parameters of these views (their numbers in the view set) of these images.

    Equal in distribution to torchvision's RandomResizedCrop, ColorJitter (random order), RandomGrayscale,
    GaussianBlur and RandomSolarize.
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
    """Ten attempts at a random area and ratio; the first that fits, else the largest central one."""
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
