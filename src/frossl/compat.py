"""Make `import torchvision` work beside a torch that its compiled operators were not built for.

A CPU-only torch is often installed next to a CUDA build of torchvision. The compiled operators then
fail to load, and torchvision stops at import while registering fake kernels for two of them. frossl
needs none of those operators, so it declares the two names, and only where torchvision would fail.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import PathFinder
from pathlib import Path

import torch

_declared: torch.library.Library | None = None  # the declarations last as long as this object


def _operators_load() -> bool:
    """Return whether torchvision's compiled extension can be loaded (or torchvision is not installed)."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return True
    extension = PathFinder.find_spec("_C", list(spec.submodule_search_locations))
    if extension is None or extension.origin is None or not Path(extension.origin).is_file():
        return False
    try:
        torch.ops.load_library(extension.origin)
    except OSError:
        return False
    return hasattr(torch.ops.torchvision, "nms")


def fix_torchvision() -> bool:
    """Declare the operators that torchvision registers fake kernels for; return whether that was needed."""
    global _declared
    if _declared is None and not _operators_load():
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared = library
    return _declared is not None


fix_torchvision()
