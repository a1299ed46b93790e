"""FroSSL in float64 by another route: eigenvalues instead of Frobenius norms, loops over pairs of views."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def frossl(z: np.ndarray, *, w: float, b: float, normalize: str, log: bool) -> float:
    V, N, _ = z.shape
    unit = []
    for view in z:
        x = view - view.mean(axis=0) if normalize == "centered" else view
        unit.append(x / np.linalg.norm(x, axis=1 if normalize == "rows" else 0, keepdims=True))
    variance = 0.0
    for x in unit:
        eigenvalues = np.linalg.eigvalsh(np.cov(x, rowvar=False, bias=True) + np.outer(x.mean(0), x.mean(0)))
        share = eigenvalues / eigenvalues.sum()
        variance += np.log((share**2).sum()) if log else (share**2).sum()
    invariance = 0.0
    for v in range(V):
        for r in range(v + 1, V):
            invariance += sum(np.dot(row, row) for row in unit[v] - unit[r])
    return b * variance + w * invariance / N


def gradient(f: Callable[[np.ndarray], float], z: np.ndarray, h: float = 1e-3) -> np.ndarray:
    """Five-point differences, entry by entry."""
    out = np.empty_like(z)
    for i in np.ndindex(*z.shape):
        e = np.zeros_like(z)
        e[i] = h
        out[i] = (f(z - 2 * e) - 8 * f(z - e) + 8 * f(z + e) - f(z + 2 * e)) / (12 * h)
    return out
