"""All diagnostics of one step, from its features and projections."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from frossl.diagnostics.spectrum import (
    alignment,
    alpha_req,
    dead_units,
    effective_rank,
    eigenvalues,
    lidar,
    rankme,
    spread,
    uniformity,
)

EIGENVALUES_KEPT = 20
"""Number of eigenvalues recorded of each spectrum."""
MAX_IMAGES = 512
"""Most images of a batch that are measured: the cost is that of the eigenvalues of their Gram matrix."""

LIDAR_IMAGES = 128
"""Most images for LiDAR, which whitens as many directions as they have views."""

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
    numbers: Numbers = {}
    if not all(tensors[name].isfinite().all() for name in ("z", "features")):
        return numbers
    for name in ("z", "features"):
        first = tensors[name][0, :MAX_IMAGES]
        spectrum = eigenvalues(first)
        numbers |= {
            f"{name}_rank": effective_rank(spectrum).item(),
            f"{name}_rankme": rankme(first).item(),
            f"{name}_alpha": alpha_req(spectrum).item(),
            f"{name}_condition": condition_number(spectrum),
            f"{name}_spread": spread(first).item(),
            f"{name}_variance": spectrum.sum().item(),
            f"{name}_eigenvalues": spectrum[:EIGENVALUES_KEPT].tolist(),
        }
    z = tensors["z"][:, :MAX_IMAGES]
    return numbers | {
        "directions": min(z.shape[1] - 1, z.shape[2]),
        "lidar": lidar(z[:, :LIDAR_IMAGES]).item(),
        "alignment": alignment(z).item(),
        "uniformity": uniformity(z[0]).item(),
        "dead_units": dead_units(tensors["features"][0]).item(),
    }


def condition_number(spectrum: Tensor) -> float:
    """Return λ₁ / λ₂₀, or λ₁ / λ_last of a shorter spectrum."""
    last = spectrum[min(EIGENVALUES_KEPT, len(spectrum)) - 1].item()
    return spectrum[0].item() / last if last > 0 else float("inf")


def log_spaced(step: int, *, per_decade: int = 20) -> bool:
    """Return whether a step, counted from 1, is among those evenly spaced on a logarithmic axis."""
    below = round(per_decade * math.log10(step))
    return any(round(10 ** ((below + i) / per_decade)) == step for i in (-1, 0, 1))
