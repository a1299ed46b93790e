"""Metrics of embeddings that need no labels.

Embeddings are (N, D), or (V, N, D) where views matter. Everything is computed in float32 or wider, and the
eigenvalues of a covariance come from the smaller of its two Gram matrices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

EPSILON = 1e-7
"""Smallest relative eigenvalue that counts, and the constant added to shares before their logarithm."""


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


def _upcast(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _unit(z: Tensor) -> Tensor:
    return torch.nn.functional.normalize(_upcast(z), dim=-1)


def _exp_entropy(values: Tensor) -> Tensor:
    shares = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny) + EPSILON
    return (-(shares * shares.log()).sum()).exp()
