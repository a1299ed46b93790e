"""Turn a folder of unlabelled images into an encoder by self-supervised learning.

The public names are those of `__init__.pyi`. They are loaded when they are first used, so importing frossl
imports no torch.
"""

import ast
import warnings
from importlib import import_module
from os.path import splitext

from frossl.machine import let_threads_sleep

let_threads_sleep()  # here, because it must come before torch, and every entry begins with this import


def _read_stub() -> dict[str, str]:
    """Return the module of each name that the stub exports, by `from .module import name as name`."""
    with open(splitext(__file__)[0] + ".pyi", encoding="utf-8") as stub:
        statements = ast.parse(stub.read()).body
    return {
        alias.name: f"{__name__}.{statement.module}"
        for statement in statements
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    }


_MODULES = _read_stub()

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("frossl")
    if name == "Watch":
        warnings.warn("frossl.Watch is now frossl.Callback", DeprecationWarning, stacklevel=2)
        return import_module("frossl.types").Watch
    if name not in _MODULES:
        raise AttributeError(f"module 'frossl' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
