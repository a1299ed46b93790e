"""Turn a folder of unlabelled images into an encoder by self-supervised learning.

Importing frossl imports no torch: public names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frossl.api import Run as Run
    from frossl.api import demo as demo
    from frossl.api import knn as knn
    from frossl.api import load_encoder as load_encoder
    from frossl.api import pretrain as pretrain
    from frossl.api import resume as resume
    from frossl.augment import Augment as Augment
    from frossl.augment import ViewSpec as ViewSpec
    from frossl.augment import view_set as view_set
    from frossl.config import Config as Config
    from frossl.errors import FrosslError as FrosslError
    from frossl.objectives import FroSSLLoss as FroSSLLoss
    from frossl.objectives import frossl_loss as frossl_loss
    from frossl.types import Batch as Batch
    from frossl.types import Clock as Clock
    from frossl.types import LossTerms as LossTerms

_HOME = {
    "Augment": "augment",
    "Batch": "types",
    "Clock": "types",
    "Config": "config",
    "FroSSLLoss": "objectives",
    "FrosslError": "errors",
    "LossTerms": "types",
    "Run": "api",
    "ViewSpec": "augment",
    "demo": "api",
    "frossl_loss": "objectives",
    "knn": "api",
    "load_encoder": "api",
    "pretrain": "api",
    "resume": "api",
    "view_set": "augment",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("frossl")
    if name not in _HOME:
        raise AttributeError(f"module 'frossl' has no attribute {name!r}")
    return getattr(import_module(f"frossl.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
