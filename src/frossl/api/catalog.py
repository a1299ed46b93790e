"""Names, and the recipes that come with frossl."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from importlib import resources
from itertools import takewhile

import tomli_w

from frossl.augment import VIEW_SETS, share_out
from frossl.config import Config, ViewSpec
from frossl.data import NAMED
from frossl.errors import unknown
from frossl.methods import METHODS
from frossl.networks import timm_names

RECIPES = resources.files("frossl") / "recipes"


def recipes() -> dict[str, str]:
    """Names of the complete runs that come with frossl, each with the first line of its file."""
    files = sorted(RECIPES.iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
        .partition("\n")[0]
        .removeprefix("# ")
        for file in files
        if file.name.endswith(".toml")
    }


def recipe(name: str, *, method: str | None = None, views: int | None = None) -> Config:
    """A complete run by its name, for its own method and number of views or others."""
    config = Config.from_toml(recipe_text(name), method=method, views=views, known=METHODS)
    if views is None or not config.views:
        return config
    return replace(config, views=share_out(config.views, views))


def recipe_text(name: str, *, method: str | None = None) -> str:
    """The file of a recipe as it stands, or one for a method alone: every setting, and the same header."""
    if name not in recipes():
        raise unknown("recipe", name, recipes())
    text = RECIPES.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    if method is None:
        return text
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    header = "".join(takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
    header += f"# This file: what the recipe {name} says for the method {method}.\n"
    by_views = tomllib.loads(text).get("methods", {}).get(method, {}).get("at_views")
    rest = "\n" + tomli_w.dumps({"methods": {method: {"at_views": by_views}}}) if by_views else ""
    return header + Config.from_toml(text, method=method).to_toml() + rest


def names(kind: str | None = None) -> dict[str, dict[str, str]]:
    """What can be named, by kind, with a few words; `backbones` (over a thousand) only when asked for."""
    known = {
        "methods": {name: _about(METHODS[name].objective) for name in sorted(METHODS)},
        "data": {name: named.about for name, named in NAMED.items()},
        "views": {name: " + ".join(map(_in_words, specs)) for name, specs in VIEW_SETS.items()},
        "recipes": recipes(),
    }
    if kind is None:
        return known
    if kind == "backbones":
        return {kind: dict.fromkeys(timm_names(), "")}
    if kind not in known:
        raise unknown("kind of name", kind, [*known, "backbones", "runs"])
    return {kind: known[kind]}


def _about(kind: type) -> str:
    """The first line of what the file of a class says of itself."""
    return (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0]


def _in_words(spec: ViewSpec) -> str:
    low, high = spec.scale
    strengths = "/".join(f"{x:g}" for x in (spec.brightness, spec.contrast, spec.saturation, spec.hue))
    solarized = f", solarized {spec.solarize:g}" if spec.solarize else ""
    return f"{low:g}–{high:g} of the image, jitter {strengths}, blur {spec.blur:g}{solarized}"
