"""Deprecated since 0.2.0: the names that this module held are in `frossl` and `frossl.recipes`."""

from __future__ import annotations

import warnings
from typing import Any

import frossl.recipes

RENAMED = {
    "Choices": "RunOptions",
    "Comparison": "Evaluation",
    "Embedded": "EmbedResult",
    "Examination": "DoctorReport",
    "Where": "EvalOptions",
    "names": "list_names",
    "runs": "list_runs",
}
"""Names of 0.1.0 and what they are called now; all other names stayed."""


def __getattr__(name: str) -> Any:
    new = RENAMED.get(name, name)
    home = frossl.recipes if new in ("recipe_text", "recipes") else frossl
    if new not in home.__all__:
        raise AttributeError(f"module 'frossl.api' has no attribute {name!r}")
    warnings.warn(f"frossl.api.{name} is now {home.__name__}.{new}", DeprecationWarning, stacklevel=2)
    return getattr(home, new)
