"""What one look at a step says, in numbers."""

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

TOP = 20
"""Eigenvalues that are kept of each spectrum."""
LARGEST = 512
"""Images that are looked at, of a larger batch: the cost is that of their Gram matrix's eigenvalues."""

FEW = 128
"""Images that LiDAR is asked about: it whitens as many directions as these have views."""

Numbers = dict[str, float | list[float]]


@torch.no_grad()
def diagnose(tensors: Mapping[str, Tensor]) -> Numbers:
    """`features` (V, N, F) and `z` (V, N, D) of a step, as numbers by name; none of what is not finite.

    Spectra are those of the first view, as in the paper's figure.
    """
    try:
        return _numbers(tensors)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # numbers not finite, or nearly so
        return {}


def _numbers(tensors: Mapping[str, Tensor]) -> Numbers:
    numbers: Numbers = {}
    if not all(tensors[name].isfinite().all() for name in ("z", "features")):
        return numbers
    for name in ("z", "features"):
        first = tensors[name][0, :LARGEST]
        spectrum = eigenvalues(first)
        numbers |= {
            f"{name}_rank": effective_rank(spectrum).item(),
            f"{name}_rankme": rankme(first).item(),
            f"{name}_alpha": alpha_req(spectrum).item(),
            f"{name}_condition": condition(spectrum),
            f"{name}_spread": spread(first).item(),
            f"{name}_variance": spectrum.sum().item(),
            f"{name}_eigenvalues": spectrum[:TOP].tolist(),
        }
    z = tensors["z"][:, :LARGEST]
    return numbers | {
        "directions": min(z.shape[1] - 1, z.shape[2]),
        "lidar": lidar(z[:, :FEW]).item(),
        "alignment": alignment(z).item(),
        "uniformity": uniformity(z[0]).item(),
        "dead_units": dead_units(tensors["features"][0]).item(),
    }


def condition(spectrum: Tensor) -> float:
    """λ₁ / λ₂₀, or of as many as there are."""
    last = spectrum[min(TOP, len(spectrum)) - 1].item()
    return spectrum[0].item() / last if last > 0 else float("inf")


def log_spaced(step: int, *, per_decade: int = 20) -> bool:
    """Is the step, counted from 1, one of those that are evenly spread on a logarithmic axis?"""
    below = round(per_decade * math.log10(step))
    return any(round(10 ** ((below + i) / per_decade)) == step for i in (-1, 0, 1))
