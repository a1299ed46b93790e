"""Figures of the original implementations, on inputs that are defined by a formula."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text())


def cases(prefix: str) -> list[dict[str, Any]]:
    return [case for case in GOLDEN["cases"] if case["id"].startswith(prefix)]


def _grid(V: int, N: int, D: int) -> list[np.ndarray]:
    return np.meshgrid(*(np.arange(k, dtype=np.float64) for k in (V, N, D)), indexing="ij")


def views(V: int, N: int, D: int, shift: float = 0.0) -> np.ndarray:
    """The input z (V, N, D) of every case."""
    v, n, d = _grid(V, N, D)
    shared = np.sin(1.0 + shift + 0.481 * n * n + 2.1 * d + 0.9 * n * d)
    shared += 0.5 * np.cos(0.9 * n + 0.391 * d * d) + 0.3 * np.cos(1.7 * d)
    phase = 0.7 + shift + 1.9 * v + 1.3 * n + 0.8 * d + 0.57 * n * d
    phase += 0.31 * v * n + 0.83 * v * d + 0.27 * v * v
    return (0.8 + 0.12 * d) * (shared + 0.35 * np.sin(phase)) + 0.1 * v


def direction(V: int, N: int, D: int) -> np.ndarray:
    """What gradients are multiplied with to give `grad_dot`."""
    v, n, d = _grid(V, N, D)
    return np.cos(0.3 + 0.5 * v + 0.8 * n + 1.1 * d)
