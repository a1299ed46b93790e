"""Named view sets: data, not code. Sizes are those beside views of 224 pixels; `view_set` scales them."""

from __future__ import annotations

from dataclasses import replace

from frossl.config import ViewSpec
from frossl.errors import InputError, unknown

NOMINAL = 224

_STRONG = ViewSpec(size=NOMINAL, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2)
_MILD = ViewSpec(size=NOMINAL, brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
_GENTLE = ViewSpec(
    size=NOMINAL, scale=(0.2, 1.0), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=0.0
)

VIEW_SETS: dict[str, tuple[ViewSpec, ...]] = {
    # the paper's sets; two entries share the views, half each
    "symmetric": (_STRONG,),
    "asymmetric": (replace(_MILD, blur=1.0), replace(_MILD, blur=0.1, solarize=0.2)),
    "weak": (_MILD,),
    # ours, for short runs on small images: chosen on a validation split, see docs/decisions.md
    "gentle": (_GENTLE,),
    # two views of most of the image and six of small parts of it
    "multicrop": (
        replace(_GENTLE, count=2, scale=(0.25, 1.0)),
        replace(_GENTLE, count=6, size=96, scale=(0.05, 0.25)),
    ),
    # many small patches, as EMP-SSL takes them
    "patches": (replace(_MILD, count=20, size=144, scale=(0.25, 0.25), ratio=(1.0, 1.0), blur=0.0),),
}


def view_set(name: str, *, size: int, views: int | None = None) -> tuple[ViewSpec, ...]:
    """A named set whose full views have `size` pixels, with `views` views (the set's own number, or 2)."""
    if name not in VIEW_SETS:
        raise unknown("view set", name, VIEW_SETS)
    specs = tuple(replace(spec, size=_scaled(spec.size, size)) for spec in VIEW_SETS[name])
    return share_out(specs, max(2, sum(spec.count for spec in specs)) if views is None else views)


def share_out(specs: tuple[ViewSpec, ...], views: int) -> tuple[ViewSpec, ...]:
    """The same kinds of views, `views` in all, shared as evenly as they go.

    Where there are several sizes, those of the largest stay as they are, and the smaller ones share the rest.
    """
    if views < 2:
        raise InputError(f"views = {views}; views of one image are compared, so give at least 2")
    largest = max(spec.size for spec in specs)
    leading = tuple(spec for spec in specs if spec.size == largest)
    smaller = tuple(spec for spec in specs if spec.size < largest)
    if not smaller:
        return _shared(leading, views)
    whole = sum(spec.count for spec in leading)
    if views <= whole:
        raise InputError(
            f"views = {views}; {whole} of them are full views here, so give at least {whole + 1}"
        )
    return leading + _shared(smaller, views - whole)


def _shared(specs: tuple[ViewSpec, ...], views: int) -> tuple[ViewSpec, ...]:
    counts = [views // len(specs) + (i < views % len(specs)) for i in range(len(specs))]
    return tuple(replace(spec, count=count) for spec, count in zip(specs, counts, strict=True) if count)


def _scaled(nominal: int, size: int) -> int:
    """Smaller views in steps of 4 pixels, as backbones halve their maps."""
    return size if nominal == NOMINAL else max(8, round(nominal * size / NOMINAL / 4) * 4)
