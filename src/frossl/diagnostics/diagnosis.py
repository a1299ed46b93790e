"""All diagnostics of one step, from its features and projections."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from frossl.diagnostics.spectrum import BATCH_METRICS, EMBEDDING_METRICS, eigenvalues

MAX_IMAGES = 512
"""Most images of a batch that are measured: the cost is that of the eigenvalues of their Gram matrix."""

Numbers = dict[str, float | list[float]]
"""Metrics by name; a spectrum is a list."""


@torch.no_grad()
def diagnose(tensors: Mapping[str, Tensor]) -> Numbers:
    """Compute the diagnostics of one step.

    Spectra are those of the first view, as in the paper's figure.

    Args:
        tensors: `features` (V, N, F) and `z` (V, N, D).

    Returns:
        Metrics by name; empty if any input is not finite.
    """
    try:
        return _numbers(tensors)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # values close to overflow
        return {}


def _numbers(tensors: Mapping[str, Tensor]) -> Numbers:
    values: dict[str, Tensor | float] = {}
    if not all(tensors[name].isfinite().all() for name in ("z", "features")):
        return {}
    for name in ("z", "features"):
        first = tensors[name][0, :MAX_IMAGES]
        spectrum = eigenvalues(first)
        values |= {f"{name}_{key}": m.compute(first, spectrum) for key, m in EMBEDDING_METRICS.items()}
    z, features = tensors["z"][:, :MAX_IMAGES], tensors["features"]
    values |= {key: metric.compute(z, features) for key, metric in BATCH_METRICS.items()}
    return {key: value.tolist() if isinstance(value, Tensor) else value for key, value in values.items()}


def log_spaced(step: int, *, per_decade: int = 20) -> bool:
    """Return whether a step, counted from 1, is among those evenly spaced on a logarithmic axis."""
    below = round(per_decade * math.log10(step))
    return any(round(10 ** ((below + i) / per_decade)) == step for i in (-1, 0, 1))
