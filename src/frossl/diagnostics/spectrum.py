"""Metrics of embeddings that need no labels.

Embeddings are (N, D), or (V, N, D) where views matter. Everything is computed in float32 or wider, and the
eigenvalues of a covariance come from the smaller of its two Gram matrices.

A new metric is a function here and its entry in `EMBEDDING_METRICS` or `BATCH_METRICS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

EPSILON = 1e-7
"""Smallest relative eigenvalue that counts, and the constant added to shares before their logarithm."""
EIGENVALUES_KEPT = 20
"""Number of eigenvalues recorded of each spectrum."""
LIDAR_IMAGES = 128
"""Most images for LiDAR, which whitens as many directions as they have views."""


def eigenvalues(x: Tensor) -> Tensor:
    """Return the min(N, D) eigenvalues of the covariance of (N, D), largest first."""
    x = _upcast(x)
    x = x - x.mean(0)
    gram = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    spectrum: Tensor = torch.linalg.eigvalsh(gram / x.shape[0])
    return spectrum.flip(0).clamp_min(0)


def effective_rank(spectrum: Tensor) -> Tensor:
    """Return the effective rank of order 2, (Σ λ)² / Σ λ²: r for a spectrum of r equal eigenvalues."""
    return spectrum.sum().square() / spectrum.square().sum().clamp_min(torch.finfo(spectrum.dtype).tiny)


def rankme(x: Tensor) -> Tensor:
    """Return RankMe of (N, D): exp of the entropy of its singular values.

    Garrido et al., ICML 2023, arXiv 2210.02885.
    """
    x = _upcast(x)
    gram = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    return _exp_entropy(torch.linalg.eigvalsh(gram).clamp_min(0).sqrt())


def lidar(z: Tensor, *, delta: float = 1e-4) -> Tensor:
    """Return LiDAR of (V, N, D): the effective rank of the linear discriminant between images.

    Thilak et al., ICLR 2024, arXiv 2312.04000. Each image is a class and its views are samples of it. V is
    the number of views of a step; the paper takes 50.

    Args:
        z: Projections (V, N, D).
        delta: Constant added to the diagonal of the covariance within images.
    """
    z, D = _upcast(z), z.shape[-1]
    if len(z) * z.shape[1] < D:  # all rows lie in the subspace that they span, which is smaller
        z = torch.linalg.qr(z.flatten(0, 1).T).R.T.unflatten(0, z.shape[:2])
    centers = z.mean(0)
    within = (z - centers).flatten(0, 1)
    within = within.T @ within / (len(within) - z.shape[1]) + delta * torch.eye(z.shape[-1]).to(z)
    between = (centers - centers.mean(0)) / math.sqrt(len(centers) - 1)
    # the eigenvalues of W^-1/2 B W^-1/2, with B = CᵀC, are those of the smaller Gram matrix of L^-1 Cᵀ
    factor, failed = torch.linalg.cholesky_ex(within)
    if failed:  # embeddings so large that δ is lost in rounding
        return z.new_tensor(math.nan)
    whitened = torch.linalg.solve_triangular(factor, between.T, upper=False)
    gram = whitened @ whitened.T if len(whitened) < len(between) else whitened.T @ whitened
    spectrum = torch.linalg.eigvalsh(gram).clamp_min(0)
    return _exp_entropy(torch.nn.functional.pad(spectrum, (0, max(0, D - len(spectrum)))))


def alpha_req(spectrum: Tensor, *, first: int = 11, last: int = 50) -> Tensor:
    """Return α of λ_i ∝ i^−α, by least squares in the log-log plane.

    Agrawal et al., NeurIPS 2022, arXiv 2202.05808. Good representations have α near 1; 0 is a flat spectrum.

    Args:
        spectrum: Eigenvalues, largest first.
        first: First index of the fit, counted from 1; lower for short spectra.
        last: Last index of the fit; eigenvalues that are nearly zero are left out.

    Returns:
        α, or NaN with fewer than three eigenvalues to fit.
    """
    last = min(last, int((spectrum > EPSILON * spectrum[0]).sum()))
    first = min(first, max(1, last - 9))
    if last - first < 2:
        return spectrum.new_tensor(math.nan)
    x = torch.arange(first, last + 1).to(spectrum).log()
    y = spectrum[first - 1 : last].log()
    x, y = x - x.mean(), y - y.mean()
    return -(x * y).sum() / x.square().sum()


def alignment(z: Tensor) -> Tensor:
    """Return the mean squared distance between two views of an image, for unit rows of (V, N, D).

    Wang and Isola, ICML 2020.
    """
    unit = _unit(z)
    V = len(unit)
    # Σ over pairs of |a − b|² = V Σ |a|² − |Σ a|²
    pairs = V * unit.square().sum((0, 2)) - unit.sum(0).square().sum(-1)
    return pairs.mean() / (V * (V - 1) / 2)


def uniformity(z: Tensor, *, t: float = 2.0) -> Tensor:
    """Return the log of the mean of exp(−t · squared distance) between images, for unit rows of (N, D)."""
    unit = _unit(z)
    squared = (2 - 2 * unit @ unit.T).clamp_min(0)
    N = len(unit)
    kernel = (-t * squared).exp()
    return ((kernel.sum() - kernel.diagonal().sum()) / (N * (N - 1))).log()


def spread(z: Tensor) -> Tensor:
    """Return the mean standard deviation of the columns of (N, D), rows of unit length, times √D.

    1 is evenly spread over the sphere; 0 is one point.
    """
    return _unit(z).std(0, correction=0).mean() * math.sqrt(z.shape[-1])


def dead_units(features: Tensor) -> Tensor:
    """Return the share of the columns of (N, F) that hardly vary between images.

    These are the columns whose standard deviation is at most a thousandth of the median one.
    """
    deviations = _upcast(features).std(0, correction=0)
    return (deviations <= 1e-3 * deviations.median()).float().mean()


def condition_number(spectrum: Tensor) -> float:
    """Return λ₁ / λ₂₀, or λ₁ / λ_last of a shorter spectrum."""
    last = spectrum[min(EIGENVALUES_KEPT, len(spectrum)) - 1].item()
    return spectrum[0].item() / last if last > 0 else float("inf")


def directions(z: Tensor) -> int:
    """Return the largest rank that the covariance of (N, D) can have."""
    return min(z.shape[0] - 1, z.shape[1])


class Metric(NamedTuple):
    """A number in `diagnostics.jsonl`, or a list of numbers."""

    compute: Callable[[Tensor, Tensor], Tensor | float]
    """Function that returns it; its arguments are those of the table."""
    meaning: str
    """Meaning of the metric, as one line of Markdown for the docs."""


EMBEDDING_METRICS: dict[str, Metric] = {
    "rank": Metric(
        lambda x, spectrum: effective_rank(spectrum),
        "effective rank of order 2: number of directions in which embeddings vary",
    ),
    "rankme": Metric(
        lambda x, spectrum: rankme(x),
        "exp of the entropy of the singular values (RankMe): like the effective rank, with more weight on "
        "small directions",
    ),
    "alpha": Metric(
        lambda x, spectrum: alpha_req(spectrum), "exponent of the spectrum's decay (α-ReQ); 0 is flat"
    ),
    "condition": Metric(lambda x, spectrum: condition_number(spectrum), "λ₁/λ₂₀ of the covariance"),
    "spread": Metric(
        lambda x, spectrum: spread(x),
        "standard deviation per dimension, for rows of unit length: 1 is even, 0 is one point",
    ),
    "variance": Metric(lambda x, spectrum: spectrum.sum(), "sum of all eigenvalues of the covariance"),
    "eigenvalues": Metric(
        lambda x, spectrum: spectrum[:EIGENVALUES_KEPT], "the 20 largest eigenvalues of the covariance"
    ),
}
"""Metrics of the projections and of the features, from the embeddings (N, D) of the first view and the
eigenvalues of their covariance; recorded as `z_NAME` and `features_NAME`."""

BATCH_METRICS: dict[str, Metric] = {
    "directions": Metric(lambda z, features: directions(z[0]), "largest value that `z_rank` can have"),
    "lidar": Metric(
        lambda z, features: lidar(z[:, :LIDAR_IMAGES]),
        "effective rank of the differences between projections of images, relative to those between views of "
        "one image",
    ),
    "alignment": Metric(
        lambda z, features: alignment(z), "distance between projections of views of an image, at unit length"
    ),
    "uniformity": Metric(
        lambda z, features: uniformity(z[0]), "how evenly projections of unit length fill the sphere"
    ),
    "dead_units": Metric(
        lambda z, features: dead_units(features[0]),
        "share of the features' dimensions that are almost constant across images",
    ),
}
"""Metrics recorded under their own name, from the projections (V, N, D) of at most `MAX_IMAGES` images and
the features (V, N, F) of all images."""


def _upcast(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _unit(z: Tensor) -> Tensor:
    return torch.nn.functional.normalize(_upcast(z), dim=-1)


def _exp_entropy(values: Tensor) -> Tensor:
    shares = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny) + EPSILON
    return (-(shares * shares.log()).sum()).exp()
