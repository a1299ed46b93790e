"""Named view sets: data, not code. Sizes and counts are filled in by `view_set`."""

from __future__ import annotations

from dataclasses import replace

from frossl.config import ViewSpec
from frossl.errors import InputError, unknown

_STRONG = ViewSpec(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2)
_MILD = ViewSpec(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)

VIEW_SETS: dict[str, tuple[ViewSpec, ...]] = {
    # the paper's sets; two entries share the views, half each
    "symmetric": (_STRONG,),
    "asymmetric": (replace(_MILD, blur=1.0), replace(_MILD, blur=0.1, solarize=0.2)),
    "weak": (_MILD,),
    # ours, for short runs on small images: chosen on a validation split, see docs/decisions.md
    "gentle": (ViewSpec(scale=(0.2, 1.0), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=0.0),),
}


def view_set(name: str, *, size: int, views: int) -> tuple[ViewSpec, ...]:
    """`views` views of `size` pixels from a named set."""
    if name not in VIEW_SETS:
        raise unknown("view set", name, VIEW_SETS)
    return share_out(tuple(replace(spec, size=size) for spec in VIEW_SETS[name]), views)


def share_out(specs: tuple[ViewSpec, ...], views: int) -> tuple[ViewSpec, ...]:
    """The same kinds of views, `views` in all, shared as evenly as they go."""
    if views < 2:
        raise InputError(f"views = {views}; views of one image are compared, so give at least 2")
    counts = [views // len(specs) + (i < views % len(specs)) for i in range(len(specs))]
    return tuple(replace(spec, count=count) for spec, count in zip(specs, counts, strict=True) if count)
