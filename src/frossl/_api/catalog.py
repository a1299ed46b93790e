"""List available methods, data sets, view sets, recipes, export formats and backbones."""

from __future__ import annotations

import sys

from frossl.augment import VIEW_SETS
from frossl.augment.operations import active_operations
from frossl.config import ViewSpec
from frossl.data import NAMED
from frossl.errors import unknown
from frossl.exporting import FORMATS
from frossl.methods import METHODS
from frossl.methods.own import installed_methods, origin
from frossl.networks import timm_names
from frossl.recipes import recipes


def list_names(kind: str | None = None) -> dict[str, dict[str, str]]:
    """Return the names that other functions and commands accept, with a short description of each.

    Args:
        kind: One of `methods`, `data`, `views`, `recipes`, `formats` or `backbones`. None returns all kinds
            except `backbones`, of which there are more than a thousand.

    Returns:
        Descriptions by name, for each kind. Backbones have empty descriptions.

    Raises:
        InputError: If `kind` is unknown.
    """
    known = {
        "methods": {
            **{name: _summary(METHODS[name].objective) for name in sorted(METHODS)},
            **{name: f"from {origin(point)}" for name, point in sorted(installed_methods().items())},
        },
        "data": {name: named.about for name, named in NAMED.items()},
        "views": {name: " + ".join(map(_describe_view, specs)) for name, specs in VIEW_SETS.items()},
        "recipes": recipes(),
        "formats": {name: format.summary for name, format in FORMATS.items()},
    }
    if kind is None:
        return known
    if kind == "backbones":
        return {kind: dict.fromkeys(timm_names(), "")}
    if kind not in known:
        raise unknown("kind of name", kind, [*known, "backbones", "runs"])
    return {kind: known[kind]}


def _summary(kind: type) -> str:
    """Return the first line of the docstring of the module that defines a class."""
    return (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0]


def _describe_view(spec: ViewSpec) -> str:
    low, high = spec.scale
    strengths = "/".join(f"{x:g}" for x in (spec.brightness, spec.contrast, spec.saturation, spec.hue))
    detail = {"jitter": f" by {strengths}"}
    operations = (
        f"{o.name} {o.probability(spec):g}{detail.get(o.name, '')}" for o in active_operations(spec)
    )
    return ", ".join([f"{low:g}–{high:g} of the image", *operations])
