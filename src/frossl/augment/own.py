"""Views made by a transform of the user."""

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
from frossl.types import Batch, Clock, isolated_rng

Transform = Callable[[Tensor], Tensor | Sequence[Tensor]]
"""Function from an image, uint8 (C, H, W), to a view as the networks take it, float (C, S, S), or several.

It may draw random numbers from torch, numpy or `random`: they are seeded for each image.
"""


class OwnViews:
    """Callable from a batch to its views by a transform: a list of (V_s, N, C, S, S), largest size first.

    Images are transformed one by one. Like those of `Augment`, the views are a function of (seed, epoch, id,
    view), if the transform has no other source of randomness.

    Args:
        transform: Function from an image to one view or to all its views.
        views: Number of calls per image, if the transform returns one view.
    """

    def __init__(self, transform: Transform, *, views: int = 2) -> None:
        self.transform, self.views = transform, views

    def __call__(self, batch: Batch, clock: Clock) -> list[Tensor]:
        with _preserved_random_state():
            made = [
                self._views_of(image, id, clock)
                for image, id in zip(batch.to("cpu").unpadded(), batch.ids.tolist(), strict=True)
            ]
        shapes = {tuple(tuple(_check_view(view).shape) for view in views) for views in made}
        if len(shapes) > 1:
            examples = " and ".join(map(str, sorted(shapes)[:2]))
            raise InputError(
                f"the transform returned views of {examples}; return the same shapes for every image"
            )
        views = [torch.stack(images).float() for images in zip(*made, strict=True)]
        by_size: dict[int, list[Tensor]] = {}
        for view in sorted(views, key=lambda view: -view.shape[-1]):
            by_size.setdefault(view.shape[-1], []).append(view)
        return [torch.stack(same_size).to(batch.images.device) for same_size in by_size.values()]

    def specs(self, batch: Batch) -> tuple[ViewSpec, ...]:
        """Return the number and size of the views, by making those of a batch once."""
        made = self(batch, Clock(step=0, total=1, epoch=0, seed=0))
        for views in made:
            if views.shape[2] != batch.images.shape[1]:
                raise InputError(
                    f"the transform changes {batch.images.shape[1]} channels to {views.shape[2]}; keep them"
                )
        # crops of a bag of features are flipped
        return tuple(ViewSpec(size=views.shape[-1], count=len(views), flip=0.5) for views in made)

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
            views.append(_check_view(made))
        return views


def _check_view(view: object) -> Tensor:
    if not isinstance(view, Tensor) or not view.is_floating_point() or view.ndim != 3:
        found = f"{view.dtype} {tuple(view.shape)}" if isinstance(view, Tensor) else type(view).__name__
        raise InputError(f"the transform returned {found}; return a view as float (C, S, S), or several")
    if view.shape[-1] != view.shape[-2]:
        raise InputError(f"the transform returned a view of {tuple(view.shape)}; views are squares")
    return view


@contextmanager
def _preserved_random_state() -> Iterator[None]:
    """Restore the random state of torch, numpy and `random` afterwards."""
    own, numpy = random.getstate(), np.random.get_state()
    with isolated_rng():
        try:
            yield
        finally:
            random.setstate(own)
            np.random.set_state(numpy)
