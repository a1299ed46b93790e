"""Functions of eigenvalues: matrix entropies, relative entropies, the nuclear norm.

Gradients are those of eigenvalues, or of matrix functions by divided differences. Unlike the gradients of
eigenvectors, they are correct where eigenvalues repeat. Second derivatives are those of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from frossl.objectives.contract import transformed
from frossl.objectives.terms import concentration, gram, unit_trace

Function = Callable[[Tensor], Tensor]
"""Elementwise function."""

MAX_PRODUCT_ORDER = 64
"""Largest order of an entropy that is computed by matrix products; larger ones by eigenvalues."""


def eigenvalue_shares(z: Tensor) -> Tensor:
    """Return the eigenvalues (V, min(N, D)) of the unit-trace covariance zᵀz / tr zᵀz; 0 if z is 0."""
    matrix = gram(z)
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None]
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values.clamp_min(0) / trace.clamp_min(torch.finfo(z.dtype).tiny)


def von_neumann_entropy(shares: Tensor) -> Tensor:
    """Return −Σ λ log λ over the last dimension; 0 log 0 = 0, with gradient 0."""
    nonzero = shares > torch.finfo(shares.dtype).eps
    return -(shares * torch.where(nonzero, shares, 1.0).log()).sum(-1)


def renyi_variance(z: Tensor, alpha: float = 2.0) -> Tensor:
    """Return the negative Rényi entropy −S_α(C_v) = log(tr C_v^α) / (α − 1) of each view, (V,).

    C_v is the unit-trace covariance. α = 1 is the negative von Neumann entropy (I-VNE), by eigenvalues; α = 2
    is log‖C‖²_F (FroSSL), by one product; larger integers need products alone: tr C³ = ⟨C², C⟩,
    tr C⁴ = ‖C²‖²_F, … (up to α = 64); any other α > 0 needs eigenvalues. exp(S_α) is the effective rank of
    order α.

    Cost: N·D·min(N, D) for the Gram matrix, and min(N, D)³ for eigenvalues or a further product.

    Args:
        z: Normalized projections (V, N, D).
        alpha: Order α of the entropy.

    Raises:
        ValueError: If `alpha` is not above 0.
    """
    if alpha <= 0:
        raise ValueError(f"alpha is {alpha}; expected a number above 0")
    if alpha == 2:
        return concentration(z).log()
    if 2 < alpha <= MAX_PRODUCT_ORDER and alpha == int(alpha):
        matrix, nonzero = unit_trace(gram(z))
        half = torch.linalg.matrix_power(matrix, int(alpha) // 2)
        other = half @ matrix if int(alpha) % 2 else half
        power = (half * other).sum((-2, -1))
        # views that are 0 count as rank 1, as for α = 2
        return torch.where(nonzero, power, 1.0).log() / (alpha - 1)
    shares = eigenvalue_shares(z)
    if alpha == 1:
        return -von_neumann_entropy(shares)
    nonzero = shares > torch.finfo(z.dtype).eps
    power = (torch.where(nonzero, shares, 1.0) ** alpha * nonzero).sum(-1)
    return torch.where(nonzero.any(-1), power, 1.0).log() / (alpha - 1)


class _NuclearNorm(torch.autograd.Function):
    """Nuclear norm whose backward pass uses the polar factor; see `nuclear_norm`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        left, values, right = torch.linalg.svd(z, full_matrices=False)
        floor = values.amax(-1, keepdim=True) * (max(z.shape[-2:]) * torch.finfo(z.dtype).eps)
        polar = (left * (values > floor.clamp_min(1e-12))[..., None, :]) @ right
        ctx.save_for_backward(z, polar)
        norm: Tensor = (polar * z).sum((-2, -1))
        return norm

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        polar: Tensor
        z, polar = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated (create_graph)
            norm = torch.linalg.svdvals(z).sum(-1)
            (polar,) = torch.autograd.grad(norm, z, torch.ones_like(norm), create_graph=True)
        return gradient[..., None, None] * polar


def nuclear_norm(z: Tensor) -> Tensor:
    """Return the sum of the singular values of each matrix in a batch.

    The gradient is the polar factor UVᵀ over the nonzero singular values; the other directions get none, so
    that it is finite where singular values repeat or are zero. The factors are the reduced ones, with
    min(N, D) vectors each. Second derivatives are those of torch's SVD: NaN where singular values repeat.
    """
    if torch.compiler.is_compiling() or transformed(z):
        norm: Tensor = torch.linalg.svdvals(z).sum(-1)
    else:
        norm = _NuclearNorm.apply(z)
    return norm


def log_det(matrix: Tensor) -> Tensor:
    """Return log det of symmetric matrices, by Cholesky without host sync; NaN if not positive definite."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    factor = torch.where((info > 0)[..., None, None], torch.nan, factor)
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


# relative entropies of A with respect to B, both symmetric and positive definite


class _MatrixFunction(torch.autograd.Function):
    """f(A) of symmetric A by its eigenvalues. Backward: divided differences of f, with f′ on the diagonal."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, f: Function, slope: Function) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        rows, columns = values[..., :, None], values[..., None, :]
        gap = rows - columns
        close = gap.abs() <= torch.finfo(matrix.dtype).eps ** 0.5 * (rows.abs() + columns.abs())
        quotient = (f(rows) - f(columns)) / torch.where(close, 1.0, gap)
        ctx.f = f
        ctx.save_for_backward(matrix, vectors, torch.where(close, slope((rows + columns) / 2), quotient))
        result: Tensor = (vectors * f(values)[..., None, :]) @ vectors.mT
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        matrix, vectors, differences = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated (create_graph)
            result = _by_eigenvectors(matrix, ctx.f)
            return *torch.autograd.grad(result, matrix, gradient, create_graph=True), None, None
        inner = vectors.mT @ ((gradient + gradient.mT) / 2) @ vectors
        return vectors @ (differences * inner) @ vectors.mT, None, None


def _by_eigenvectors(matrix: Tensor, f: Function) -> Tensor:
    """Return f(A) with torch's derivatives of eigenvectors, of any order: NaN where eigenvalues repeat."""
    values, vectors = torch.linalg.eigh(matrix)
    result: Tensor = (vectors * f(values)[..., None, :]) @ vectors.mT
    return result


def _matrix_function(matrix: Tensor, f: Function, slope: Function) -> Tensor:
    if transformed(matrix):
        return _by_eigenvectors(matrix, f)
    result: Tensor = _MatrixFunction.apply(matrix, f, slope)
    return result


def matrix_log(matrix: Tensor) -> Tensor:
    """Return the logarithm of symmetric positive definite matrices."""
    return _matrix_function(matrix, torch.log, torch.reciprocal)


def matrix_power(matrix: Tensor, exponent: float) -> Tensor:
    """Return a real power of symmetric positive definite matrices."""
    return _matrix_function(matrix, lambda x: x**exponent, lambda x: exponent * x ** (exponent - 1))


def log_det_divergence(a: Tensor, b: Tensor) -> Tensor:
    """Return the log-determinant divergence tr(AB⁻¹) − D − log det(AB⁻¹).

    At B = I and a unit diagonal of A it is −log det A, the variance term of CorInfoMax.

    Args:
        a: Symmetric positive definite matrices A (…, D, D).
        b: Symmetric positive definite matrices B (…, D, D).
    """
    ratio: Tensor = torch.linalg.solve(b, a)  # B⁻¹A has the trace and determinant of AB⁻¹
    return ratio.diagonal(dim1=-2, dim2=-1).sum(-1) - a.shape[-1] - (log_det(a) - log_det(b))


def von_neumann_divergence(a: Tensor, b: Tensor) -> Tensor:
    """Return the von Neumann divergence tr A(ln A − ln B).

    At B = I it is the negative von Neumann entropy, the variance term of I-VNE.

    Args:
        a: Symmetric positive definite matrices A (…, D, D).
        b: Symmetric positive definite matrices B (…, D, D).
    """
    return (a * (matrix_log(a) - matrix_log(b))).sum((-2, -1))


def petz_renyi_divergence(a: Tensor, b: Tensor, alpha: float = 2.0) -> Tensor:
    """Return the Petz–Rényi divergence log tr(A^α B^{1−α}) / (α − 1).

    At B = I it is the negative Rényi entropy; with α = 2, the variance term of FroSSL. The limit α → 1 is the
    von Neumann divergence, for unit traces.

    Args:
        a: Symmetric positive definite matrices A (…, D, D).
        b: Symmetric positive definite matrices B (…, D, D).
        alpha: Order α.

    Raises:
        ValueError: If `alpha` is not above 0.
    """
    if alpha <= 0:
        raise ValueError(f"alpha is {alpha}; expected a number above 0")
    if alpha == 1:
        return von_neumann_divergence(a, b)
    return (matrix_power(a, alpha) * matrix_power(b, 1 - alpha)).sum((-2, -1)).log() / (alpha - 1)
