"""uint8 images -> float views: batched, on any device, every random number a function of
(seed, epoch, id, view). Order: crop, resize, flip; jitter, gray, blur, solarize; mean and deviation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from frossl.augment.geometry import crop_resize_flip
from frossl.augment.own import OwnViews, Transform
from frossl.augment.photometry import blur, gray, jitter, solarize
from frossl.augment.plan import Plan, one_thread, plan
from frossl.augment.sets import VIEW_SETS, share_out, view_set
from frossl.augment.sheet import view_sheet
from frossl.config import ViewKernel, ViewSpec
from frossl.errors import InputError
from frossl.types import Batch, Clock

__all__ = [
    "VIEW_SETS",
    "Augment",
    "OwnViews",
    "Plan",
    "Transform",
    "ViewSpec",
    "make_views",
    "plan",
    "share_out",
    "standardize",
    "view_set",
    "view_sheet",
]


def standardize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Subtract the mean and divide by the deviation of each channel, dimension −3."""
    shape = (-1, 1, 1)
    return (images - images.new_tensor(mean).view(shape)) / images.new_tensor(std).view(shape)


CHUNK = 1 << 19
"""Bytes of views that are made at once on a CPU: what stays in a core's cache from one pass to the next."""


def make_views(images: Tensor, spec: ViewSpec, chosen: Plan) -> Tensor:
    """uint8 (N, C, H, W) -> float (V, N, C, S, S) in [0, 1] as the plan says."""
    N, C, P, size = *images.shape[:2], len(chosen.box), spec.size
    which = torch.arange(P, device=images.device) % N
    at_once = P if images.device.type != "cpu" else max(1, CHUNK // (4 * C * size * size))
    views = torch.empty(P, C, size, size, device=images.device)
    for start in range(0, P, at_once):
        rows = slice(start, start + at_once)
        views[rows] = _made(images[which[rows]], spec, chosen.rows(rows))
    return views.view(-1, N, C, size, size)


def _made(images: Tensor, spec: ViewSpec, chosen: Plan) -> Tensor:
    """One view of each image."""
    views = crop_resize_flip(images, chosen, size=spec.size, interpolation=spec.interpolation)
    views = jitter(views, chosen.jitter, chosen.order)
    views = gray(views, chosen.gray)
    views = blur(views, chosen.sigma, largest=spec.sigma[1])
    return solarize(views, chosen.solarize)


class Augment:
    """A view set with the statistics of its data: Batch -> list of (V_s, N, C, S, S), largest size first.

    kernel: `numba` makes views of images in color by compiled loops, on a CPU (`fused`).
    """

    def __init__(
        self,
        specs: Sequence[ViewSpec],
        *,
        mean: Sequence[float],
        std: Sequence[float],
        kernel: ViewKernel = "torch",
    ) -> None:
        self.specs = tuple(sorted(specs, key=lambda spec: -spec.size))
        self.mean, self.std, self.kernel = tuple(mean), tuple(std), kernel

    @torch.no_grad()
    def __call__(self, batch: Batch, clock: Clock) -> list[Tensor]:
        self._check(batch.images)
        height, width = batch.images.shape[-2:]
        by_size: dict[int, list[Tensor]] = {}
        first = 0
        for spec in self.specs:
            numbers = torch.arange(first, first + spec.count)
            first += spec.count
            with one_thread():
                chosen = plan(spec, batch.ids, numbers, clock, height=height, width=width)
            by_size.setdefault(spec.size, []).append(self._views(batch.images, spec, chosen))
        return [torch.cat(views) if len(views) > 1 else views[0] for views in by_size.values()]

    def _check(self, images: Tensor) -> None:
        shape, channels = tuple(images.shape), len(self.mean)
        if images.dtype != torch.uint8 or len(shape) != 4 or shape[1] != channels:
            raise InputError(f"images are {images.dtype} {shape}; give uint8 (N, {channels}, H, W), 0 to 255")

    def _views(self, images: Tensor, spec: ViewSpec, chosen: Plan) -> Tensor:
        if self.kernel == "numba" and images.device.type == "cpu" and images.shape[1] == 3:
            from frossl.augment.fused import fused_views  # an extra

            return fused_views(images, spec, chosen, mean=self.mean, std=self.std)
        return standardize(make_views(images, spec, chosen), self.mean, self.std)
