"""Numbers from embeddings, without labels.

Embeddings are (N, D), or (V, N, D) where views matter. Everything is computed in float32 or wider, and the
eigenvalues of a covariance come from the smaller of its two Gram matrices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TINY = 1e-7


def eigenvalues(x: Tensor) -> Tensor:
    """Of the covariance of (N, D): min(N, D) of them, largest first."""
    x = _wide(x)
    x = x - x.mean(0)
    gram = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    spectrum: Tensor = torch.linalg.eigvalsh(gram / x.shape[0])
    return spectrum.flip(0).clamp_min(0)


def effective_rank(spectrum: Tensor) -> Tensor:
    """Of order 2: (Σ λ)² / Σ λ². A spectrum of r equal eigenvalues has r."""
    return spectrum.sum().square() / spectrum.square().sum().clamp_min(torch.finfo(spectrum.dtype).tiny)


def rankme(x: Tensor) -> Tensor:
    """exp of the entropy of the singular values of (N, D) (Garrido et al., ICML 2023, arXiv 2210.02885)."""
    x = _wide(x)
    gram = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    return _exp_entropy(torch.linalg.eigvalsh(gram).clamp_min(0).sqrt())


def lidar(z: Tensor, *, delta: float = 1e-4) -> Tensor:
    """Effective rank of the discriminant between images, views being samples of a class: (V, N, D)
    (Thilak et al., ICLR 2024, arXiv 2312.04000). V is what a step has, where the paper takes 50."""
    z, D = _wide(z), z.shape[-1]
    if len(z) * z.shape[1] < D:  # all rows lie in the few directions that they span
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
    """α of λ_i ∝ i^−α, by least squares between two indices in the log-log plane (Agrawal et al., NeurIPS
    2022, arXiv 2202.05808). About 1 is a spectrum that decays as a good one does; 0 is flat."""
    last = min(last, int((spectrum > TINY * spectrum[0]).sum()))
    first = min(first, max(1, last - 9))
    if last - first < 2:
        return spectrum.new_tensor(math.nan)
    x = torch.arange(first, last + 1).to(spectrum).log()
    y = spectrum[first - 1 : last].log()
    x, y = x - x.mean(), y - y.mean()
    return -(x * y).sum() / x.square().sum()


def alignment(z: Tensor) -> Tensor:
    """Mean squared distance between two views of an image, rows of unit length (Wang, Isola, ICML 2020)."""
    unit = _unit(z)
    V = len(unit)
    # Σ over pairs of |a − b|² = V Σ |a|² − |Σ a|²
    pairs = V * unit.square().sum((0, 2)) - unit.sum(0).square().sum(-1)
    return pairs.mean() / (V * (V - 1) / 2)


def uniformity(z: Tensor, *, t: float = 2.0) -> Tensor:
    """log of the mean of exp(−t · squared distance) between images, rows of unit length: (N, D)."""
    unit = _unit(z)
    squared = (2 - 2 * unit @ unit.T).clamp_min(0)
    N = len(unit)
    kernel = (-t * squared).exp()
    return ((kernel.sum() - kernel.diagonal().sum()) / (N * (N - 1))).log()


def spread(z: Tensor) -> Tensor:
    """Mean deviation of a dimension over (N, D) rows of unit length, times √D: 1 is evenly spread, 0 is one
    point."""
    return _unit(z).std(0, correction=0).mean() * math.sqrt(z.shape[-1])


def dead_units(features: Tensor) -> Tensor:
    """Share of the dimensions of (N, F) that hardly change from image to image: by less than a thousandth of
    what the middle one changes."""
    deviations = _wide(features).std(0, correction=0)
    return (deviations <= 1e-3 * deviations.median()).float().mean()


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _unit(z: Tensor) -> Tensor:
    return torch.nn.functional.normalize(_wide(z), dim=-1)


def _exp_entropy(values: Tensor) -> Tensor:
    shares = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny) + TINY
    return (-(shares * shares.log()).sum()).exp()
