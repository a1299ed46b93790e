"""Recipes that ship with frossl: complete training configurations as TOML files."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import resources
from itertools import takewhile

import tomli_w

from frossl.augment import share_out
from frossl.config import Config
from frossl.errors import unknown
from frossl.methods import METHODS
from frossl.methods.own import is_own, method_names

__all__ = ["recipe", "recipe_text", "recipes"]

RECIPE_FOLDER = resources.files("frossl") / "recipes"


def recipes() -> dict[str, str]:
    """Return the names of all recipes, each with the first line of its file."""
    files = sorted(RECIPE_FOLDER.iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
        .partition("\n")[0]
        .removeprefix("# ")
        for file in files
        if file.name.endswith(".toml")
    }


def recipe(name: str, *, method: str | None = None, views: int | None = None) -> Config:
    """Load a recipe.

    Args:
        name: Name of the recipe, one of `recipes()`.
        method: Method to configure it for, in place of the recipe's own.
        views: Number of views per image, in place of the recipe's own.

    Returns:
        The configuration.

    Raises:
        InputError: If there is no such recipe or method.
    """
    config = Config.from_toml(recipe_text(name), method=method, views=views, known=method_names())
    if views is None or not config.views:
        return config
    return replace(config, views=share_out(config.views, views))


def recipe_text(name: str, *, method: str | None = None) -> str:
    """Return a recipe as TOML.

    Args:
        name: Name of the recipe, one of `recipes()`.
        method: Write the file for this method only, with every setting and the header of the recipe; by
            default the recipe's file is returned unchanged.

    Raises:
        InputError: If there is no such recipe or method.
    """
    if name not in recipes():
        raise unknown("recipe", name, recipes())
    text = RECIPE_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    if method is None:
        return text
    if method not in METHODS and not is_own(method):
        raise unknown("method", method, method_names())
    header = "".join(takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
    header += f"# This file: what the recipe {name} says for the method {method}.\n"
    by_views = tomllib.loads(text).get("methods", {}).get(method, {}).get("at_views")
    rest = "\n" + tomli_w.dumps({"methods": {method: {"at_views": by_views}}}) if by_views else ""
    return header + Config.from_toml(text, method=method).to_toml() + rest
