"""Augmentation: uint8 images -> float views, batched and on any device.

Every random number is a function of (seed, epoch, id, view). A view is a crop, resized and flipped; then the
other operations are applied in the order of `operations`; then it is standardized by mean and deviation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from frossl.augment.geometry import crop_resize_flip
from frossl.augment.operations import Operation, active_operations
from frossl.augment.own import OwnViews, Transform
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
    """Subtract the mean and divide by the standard deviation of each channel (dimension −3)."""
    shape = (-1, 1, 1)
    return (images - images.new_tensor(mean).view(shape)) / images.new_tensor(std).view(shape)


CHUNK_BYTES = 1 << 19
"""Bytes of views made at a time on a CPU, so that they stay in the cache of a core between operations."""

DEVICE_CHUNK_BYTES = 1 << 30
"""Bytes of images, as floats, that views are made of at a time on another device."""


def make_views(batch: Batch, spec: ViewSpec, chosen: Plan) -> Tensor:
    """Make views of images with the parameters of a plan.

    Args:
        batch: The images.
        spec: Specification of the views.
        chosen: Plan of V·N views of that specification, in the order (view, image).

    Returns:
        Views (V, N, C, S, S), float in [0, 1].
    """
    images = batch.images
    N, C, P, size = *images.shape[:2], len(chosen.box), spec.size
    which = torch.arange(P, device=images.device) % N
    if images.device.type == "cpu":
        chunk = max(1, CHUNK_BYTES // (4 * C * size * size))
    else:
        chunk = max(1, DEVICE_CHUNK_BYTES // (4 * images[0].numel()))
    views = torch.empty(P, C, size, size, device=images.device)
    operations = active_operations(spec)
    for start in range(0, P, chunk):
        rows = slice(start, start + chunk)
        views[rows] = _apply(operations, batch[which[rows]], spec, chosen.rows(rows))
    return views.view(-1, N, C, size, size)


def _apply(operations: Sequence[Operation], batch: Batch, spec: ViewSpec, chosen: Plan) -> Tensor:
    """Make one view of each image."""
    views = crop_resize_flip(
        batch.images, chosen, size=spec.size, interpolation=spec.interpolation, sizes=batch.sizes
    )
    for operation in operations:
        views = operation.apply(views, chosen.parameters[operation.name], spec)
    return views


class Augment:
    """Callable from a batch to its standardized views: a list of (V_s, N, C, S, S), largest size first.

    Args:
        specs: Kinds of views.
        mean: Mean of each channel of the data, for values in [0, 1].
        std: Standard deviation of each channel.
        kernel: `torch`, or `numba` for compiled loops (`fused`), used for color images on a CPU if all active
            operations have a compiled form.
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
        height, width = batch.images.shape[-2:] if batch.sizes is None else batch.sizes.unbind(1)
        by_size: dict[int, list[Tensor]] = {}
        first = 0
        for spec in self.specs:
            numbers = torch.arange(first, first + spec.count)
            first += spec.count
            with one_thread():
                chosen = plan(spec, batch.ids, numbers, clock, height=height, width=width)
            by_size.setdefault(spec.size, []).append(self._views(batch, spec, chosen))
        return [torch.cat(views) if len(views) > 1 else views[0] for views in by_size.values()]

    def _check(self, images: Tensor) -> None:
        shape, channels = tuple(images.shape), len(self.mean)
        if images.dtype != torch.uint8 or len(shape) != 4 or shape[1] != channels:
            raise InputError(f"images are {images.dtype} {shape}; give uint8 (N, {channels}, H, W), 0 to 255")

    def _views(self, batch: Batch, spec: ViewSpec, chosen: Plan) -> Tensor:
        images = batch.images
        in_color = images.device.type == "cpu" and images.shape[1] == 3
        if self.kernel == "numba" and in_color and all(o.compiled for o in active_operations(spec)):
            from frossl.augment.fused import fused_views  # numba is an optional dependency

            return fused_views(images, spec, chosen, mean=self.mean, std=self.std)
        return standardize(make_views(batch, spec, chosen), self.mean, self.std)
