"""Random parameters of the augmentation of each view, drawn before any pixel is processed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from frossl.augment.operations import OPERATIONS, Parameters
from frossl.augment.random import uniforms
from frossl.config import ViewSpec
from frossl.types import Clock

CROP_ATTEMPTS = 10
"""Number of random crops that are tried for one that fits."""
TOP, LEFT, AREA, RATIO = 11, 12, 16, 32
"""Indices of the random numbers of a crop; `CROP_ATTEMPTS` of them from `AREA` and from `RATIO` on."""
CROP_DRAWS = range(TOP, RATIO + CROP_ATTEMPTS)
"""Indices that belong to the crop."""


@dataclass(frozen=True)
class Plan:
    """Parameters of P = V·N views, flat in the order (view, image)."""

    box: Tensor
    """int64 (P, 4): top, left, height, width of the crop."""
    parameters: Mapping[str, Parameters]
    """Parameters of the operations by name: of all that are active or have a compiled form."""

    def rows(self, which: slice) -> Plan:
        """Return the parameters of some of the views."""
        return self._each(lambda part: part[which])

    def to(self, device: torch.device | str) -> Plan:
        """Return the plan on a device."""
        return self._each(lambda part: part.to(device))

    def _each(self, function: Callable[[Tensor], Tensor]) -> Plan:
        parameters = {name: tuple(map(function, parts)) for name, parts in self.parameters.items()}
        return Plan(function(self.box), parameters)


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


def plan(
    spec: ViewSpec, ids: Tensor, views: Tensor, clock: Clock, *, height: int | Tensor, width: int | Tensor
) -> Plan:
    """Draw the parameters of views of images.

    The distribution equals that of torchvision's RandomResizedCrop, ColorJitter (random order),
    RandomGrayscale, GaussianBlur and RandomSolarize.

    Args:
        spec: Ranges and probabilities.
        ids: Ids of the N images.
        views: Numbers of the V views in the view set.
        clock: Seed and epoch.
        height: Height of the images in pixels, or of each of them, int64 (N,).
        width: Width of the images in pixels, or of each of them, int64 (N,).
    """
    operations = [o for o in OPERATIONS.values() if o.compiled or o.active(spec)]
    count = max(draws.stop for draws in (CROP_DRAWS, *(operation.draws for operation in operations)))
    u = uniforms(seed=clock.seed, epoch=clock.epoch, ids=ids, views=views, count=count).flatten(0, 1)
    return Plan(
        box=_crop_boxes(spec, u, *(_of_each(side, u, views) for side in (height, width))),
        parameters={operation.name: operation.parameters(spec, u) for operation in operations},
    )


def _of_each(side: int | Tensor, u: Tensor, views: Tensor) -> Tensor:
    """Return the side of the image of each of the P views."""
    if isinstance(side, Tensor):
        return side.to(u.device).repeat(len(views))
    return torch.full((len(u),), side, device=u.device)


def _crop_boxes(spec: ViewSpec, u: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Draw ten crops of random area and ratio; return the first that fits, else the largest central crop.

    Args:
        spec: Ranges of area and ratio.
        u: Random numbers (P, draws).
        height: Height of the image of each view, int64 (P,).
        width: Width of the image of each view, int64 (P,).
    """
    area = spec.scale[0] + u[:, AREA : AREA + CROP_ATTEMPTS] * (spec.scale[1] - spec.scale[0])
    low, high = math.log(spec.ratio[0]), math.log(spec.ratio[1])
    ratio = torch.exp(low + u[:, RATIO : RATIO + CROP_ATTEMPTS] * (high - low))
    area = area * (height * width)[:, None]
    w, h = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    fits = (w > 0) & (w <= width[:, None]) & (h > 0) & (h <= height[:, None])
    first = fits.long().argmax(1, keepdim=True)  # argmax gives the first of the largest
    w, h = w.gather(1, first)[:, 0], h.gather(1, first)[:, 0]
    top = (u[:, TOP] * (height - h + 1)).long()
    left = (u[:, LEFT] * (width - w + 1)).long()

    exact = torch.float32 if u.device.type == "mps" else torch.float64
    in_ratio = (width.to(exact) / height).clamp(*spec.ratio)
    central_w = (height * in_ratio).round().long().clamp_min(1).minimum(width)
    central_h = (width / in_ratio).round().long().clamp_min(1).minimum(height)
    central = [(height - central_h) // 2, (width - central_w) // 2, central_h, central_w]
    drawn = torch.stack([top, left, h, w], dim=1)
    return torch.where(fits.any(1)[:, None], drawn, torch.stack(central, dim=1))
