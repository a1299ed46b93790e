"""Views by a function of the user's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from frossl.augment.random import stream
from frossl.config import ViewSpec
from frossl.errors import InputError
from frossl.types import Batch, Clock, own_random_numbers

Transform = Callable[[Tensor], Tensor | Sequence[Tensor]]
"""One image, uint8 (C, H, W) -> one view of it, float (C, S, S) as the networks take it; or all its views.

Random numbers may come from torch, numpy or `random`: they are seeded for every image anew.
"""


class OwnViews:
    """Batch -> list of (V_s, N, C, S, S), largest size first, one image after the other.

    A function of (seed, epoch, id, view) as `Augment` is, if the transform draws from nowhere else.
    """

    def __init__(self, transform: Transform, *, views: int = 2) -> None:
        """views: how often the transform is called, where it makes one view at a time."""
        self.transform, self.views = transform, views

    def __call__(self, batch: Batch, clock: Clock) -> list[Tensor]:
        with _random_state_kept():
            made = [
                self._views_of(image, id, clock)
                for image, id in zip(batch.images.cpu(), batch.ids.tolist(), strict=True)
            ]
        shapes = {tuple(tuple(_checked(view).shape) for view in views) for views in made}
        if len(shapes) > 1:
            few = " and ".join(map(str, sorted(shapes)[:2]))
            raise InputError(f"the transform returned views of {few}; return the same shapes for every image")
        views = [torch.stack(of_all).float() for of_all in zip(*made, strict=True)]
        by_size: dict[int, list[Tensor]] = {}
        for view in sorted(views, key=lambda view: -view.shape[-1]):
            by_size.setdefault(view.shape[-1], []).append(view)
        return [torch.stack(alike).to(batch.images.device) for alike in by_size.values()]

    def specs(self, batch: Batch) -> tuple[ViewSpec, ...]:
        """How many views there are of which size, found by making them once."""
        made = self(batch, Clock(step=0, total=1, epoch=0, seed=0))
        for views in made:
            if views.shape[2] != batch.images.shape[1]:
                raise InputError(
                    f"the transform changes {batch.images.shape[1]} channels to {views.shape[2]}; keep them"
                )
        return tuple(ViewSpec(size=views.shape[-1], count=len(views)) for views in made)

    def _views_of(self, image: Tensor, id: int, clock: Clock) -> list[Tensor]:
        views: list[Tensor] = []
        while len(views) < self.views:
            seed = stream(seed=clock.seed, epoch=clock.epoch, id=id, view=len(views))
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % (1 << 32))
            made = self.transform(image.clone())
            if isinstance(made, (list, tuple)):
                return list(made)
            views.append(_checked(made))
        return views


def _checked(view: object) -> Tensor:
    if not isinstance(view, Tensor) or not view.is_floating_point() or view.ndim != 3:
        found = f"{view.dtype} {tuple(view.shape)}" if isinstance(view, Tensor) else type(view).__name__
        raise InputError(f"the transform returned {found}; return a view as float (C, S, S), or several")
    if view.shape[-1] != view.shape[-2]:
        raise InputError(f"the transform returned a view of {tuple(view.shape)}; views are squares")
    return view


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """The caller's random numbers stay as they were."""
    own, numpy = random.getstate(), np.random.get_state()
    with own_random_numbers():
        try:
            yield
        finally:
            random.setstate(own)
            np.random.set_state(numpy)
