"""Named view sets. Sizes are relative to full views of 224 pixels; `view_set` scales them."""

from __future__ import annotations

from dataclasses import replace

from frossl.config import ViewSpec
from frossl.errors import InputError, unknown

NOMINAL_SIZE = 224
"""Size in pixels of the full views of `VIEW_SETS`."""

_USUAL = ViewSpec(size=NOMINAL_SIZE, flip=0.5, jitter=0.8, gray=0.2)
_STRONG = replace(_USUAL, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur=0.5)
_MILD = replace(_USUAL, brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
_GENTLE = replace(_USUAL, scale=(0.2, 1.0), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)

VIEW_SETS: dict[str, tuple[ViewSpec, ...]] = {
    # the paper's sets; with two entries, each makes half of the views
    "symmetric": (_STRONG,),
    "asymmetric": (replace(_MILD, blur=1.0), replace(_MILD, blur=0.1, solarize=0.2)),
    "weak": (replace(_MILD, blur=0.5),),
    # for short runs on small images: chosen on a validation split, see docs/decisions.md
    "gentle": (_GENTLE,),
    # two views of most of the image and six of small parts of it
    "multicrop": (
        replace(_GENTLE, count=2, scale=(0.25, 1.0)),
        replace(_GENTLE, count=6, size=96, scale=(0.05, 0.25)),
    ),
    # many small patches, as in EMP-SSL
    "patches": (replace(_MILD, count=20, size=144, scale=(0.25, 0.25), ratio=(1.0, 1.0)),),
}


def view_set(name: str, *, size: int, views: int | None = None) -> tuple[ViewSpec, ...]:
    """Return a named view set.

    Args:
        name: Key of `VIEW_SETS`.
        size: Size of the full views in pixels.
        views: Number of views in all; None for the number of the set, at least 2.

    Raises:
        InputError: If the name is unknown, or the views are too few.
    """
    if name not in VIEW_SETS:
        raise unknown("view set", name, VIEW_SETS)
    specs = tuple(replace(spec, size=_scaled(spec.size, size)) for spec in VIEW_SETS[name])
    return share_out(specs, max(2, sum(spec.count for spec in specs)) if views is None else views)


def share_out(specs: tuple[ViewSpec, ...], views: int) -> tuple[ViewSpec, ...]:
    """Return the same kinds of views with counts that add up to `views`, as evenly as possible.

    With several sizes, the views of the largest size keep their counts and the smaller ones get the rest.

    Raises:
        InputError: If `views` is less than 2, or leaves none for the smaller sizes.
    """
    if views < 2:
        raise InputError(f"views = {views}; views of one image are compared, so give at least 2")
    largest = max(spec.size for spec in specs)
    global_specs = tuple(spec for spec in specs if spec.size == largest)
    local_specs = tuple(spec for spec in specs if spec.size < largest)
    if not local_specs:
        return _split_evenly(global_specs, views)
    global_count = sum(spec.count for spec in global_specs)
    if views <= global_count:
        raise InputError(
            f"views = {views}; {global_count} of them are full views here, "
            f"so give at least {global_count + 1}"
        )
    return global_specs + _split_evenly(local_specs, views - global_count)


def _split_evenly(specs: tuple[ViewSpec, ...], views: int) -> tuple[ViewSpec, ...]:
    counts = [views // len(specs) + (i < views % len(specs)) for i in range(len(specs))]
    return tuple(replace(spec, count=count) for spec, count in zip(specs, counts, strict=True) if count)


def _scaled(nominal: int, size: int) -> int:
    """Scale a size; smaller views in steps of 4 pixels, because backbones halve their feature maps."""
    return size if nominal == NOMINAL_SIZE else max(8, round(nominal * size / NOMINAL_SIZE / 4) * 4)
