"""Multinomial logistic regression in float32, with the objective of scikit-learn's `LogisticRegression`.

The objective is C · Σᵢ −log p(yᵢ) + ½‖W‖², with an intercept that is not penalized. It is minimized by
Newton's method; conjugate gradients solve for the steps. With fewer rows than features the weights are
combinations of the rows, W = AX, and A is computed instead, from the products of the rows with each other.
Problems of the same shape are solved together.

Coefficients are (B, K, M), with the classes before the features or rows: products with ten columns take
three times as long as those with ten rows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from frossl.errors import NotFiniteError

logger = logging.getLogger("frossl")

TOLERANCE = 1e-8
"""Squared norm of the gradient per row, in the metric of the inverse Hessian, at which the next step is the
last. It is about twice the distance of the mean loss to its minimum, before that step."""
MAX_NEWTON_STEPS, MAX_CG_STEPS, MAX_HALVINGS = 40, 500, 20
STALLED = 1e3
"""Multiple of the tolerance below which a gradient that does not fall any more ends a fit."""
CG_TOLERANCE = 0.3
"""Norm of the residual at which a Newton step is solved, relative to that of the gradient."""
ROUNDING = 1e-6
"""Relative change of the objective that may be rounding."""
CURVATURE_ROWS = 4
"""Rows per feature that the preconditioner is computed from, if there are more."""


@dataclass(frozen=True)
class Logistic:
    """Fitted weights of B problems."""

    weights: Tensor
    """Weights (B, K, F)."""
    intercept: Tensor
    """Intercepts (B, K, 1)."""

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits (B, M, K) of rows (M, F)."""
        return rows @ self.weights.mT + self.intercept.mT


@dataclass(frozen=True)
class _Vector:
    """Point or direction of B problems, with its logits."""

    coefficients: Tensor
    """Coefficients (B, K, M) of features or of rows."""
    intercept: Tensor
    """Intercepts (B, K, 1)."""
    logits: Tensor
    """Logits (B, K, N), with the intercept."""

    def plus(self, step: Tensor, other: _Vector) -> _Vector:
        """Return this plus `step` (B, 1, 1) times another vector."""
        return _Vector(
            self.coefficients + step * other.coefficients,
            self.intercept + step * other.intercept,
            self.logits + step * other.logits,
        )


@dataclass(frozen=True)
class _Gradient:
    """Gradient of the objective, or a residual of the same kind."""

    coefficients: Tensor
    """(B, K, M)."""
    intercept: Tensor
    """(B, K, 1)."""

    def plus(self, step: Tensor, other: _Gradient) -> _Gradient:
        """Return this plus `step` (B, 1, 1) times another gradient."""
        coefficients = self.coefficients + step * other.coefficients
        return _Gradient(coefficients, self.intercept + step * other.intercept)


@dataclass(frozen=True)
class _Preconditioner:
    """Approximation of the inverse Hessian, in which all rows and classes have the same second derivative."""

    inverse: Tensor
    """For coefficients (B, M, M)."""
    of_intercept: Tensor
    """For intercepts (B, 1, 1)."""


class LogisticRegressions:
    """Logistic regressions on B sets of N rows each.

    Each `fit` starts from the solution of the one before, so that a path of strengths takes little longer
    than one fit.

    Args:
        rows: Rows (B, N, F).
        targets: Class numbers of the rows (B, N), from 0 to `classes` − 1.
        classes: Number of classes K.
        by_rows: Whether coefficients are those of rows; by default if there are fewer rows than features.
    """

    def __init__(self, rows: Tensor, targets: Tensor, classes: int, *, by_rows: bool | None = None) -> None:
        B, N, features = rows.shape
        self.by_rows = features > N if by_rows is None else by_rows
        self.classes = classes
        self.expected = F.one_hot(targets, classes).to(rows.dtype).mT.contiguous()
        self.mean = rows.mean(1, keepdim=True)
        self.rows = rows - self.mean
        self.gram = _products(self.rows) if self.by_rows else _curvature(self.rows)
        """Products (B, M, M) of the rows with each other, or of the features (of some rows, if many)."""
        self.coefficients = rows.new_zeros(B, classes, self.gram.shape[1])
        self.intercept = rows.new_zeros(B, classes, 1)

    @torch.inference_mode()
    def fit(self, C: float) -> Logistic:
        """Fit with the inverse regularization strength C of scikit-learn.

        Raises:
            NotFiniteError: If the weights are not finite.
        """
        # scikit-learn penalizes w = w₂ − w₁ of two classes: ½‖w‖² = ‖w₁‖² + ‖w₂‖², with w₁ = −w₂
        self._minimize(C / 2 if self.classes == 2 else C)
        weights = self._weights()
        if not weights.isfinite().all():
            raise NotFiniteError(
                "the weights of a probe are not finite; the encoder is broken: train again with a lower rate"
            )
        return Logistic(weights, self.intercept - weights @ self.mean.mT)

    @torch.inference_mode()
    def start_from(self, other: LogisticRegressions, chosen: Tensor) -> None:
        """Start the next fit from the last solution for a subset of the rows.

        Args:
            other: Regressions on that subset, with the same `by_rows`.
            chosen: Mask (N,) of the subset.
        """
        if self.by_rows:
            self.coefficients = self.coefficients.clone()
            self.coefficients[:, :, chosen] = other.coefficients
        else:
            self.coefficients = other.coefficients
        self.intercept = other.intercept + other._weights() @ (self.mean - other.mean).mT

    def _weights(self) -> Tensor:
        return self.coefficients @ self.rows if self.by_rows else self.coefficients

    def _minimize(self, C: float) -> None:
        point = self._vector(self.coefficients, self.intercept)
        preconditioner = self._preconditioner(C, point.logits.softmax(1))
        tolerance = TOLERANCE * C * point.logits.shape[2]
        before, done = torch.full_like(preconditioner.of_intercept, torch.inf), torch.tensor(False)
        for _ in range(MAX_NEWTON_STEPS):
            shares = point.logits.softmax(1)
            gradient = self._gradient(C, shares - self.expected, point.coefficients)
            direction = self._newton_direction(C, shares, gradient, preconditioner)
            slope = self._product(gradient, direction)
            step = torch.where(done, 0, self._step_size(C, point, direction, slope))
            moved = point.plus(step, direction)
            coefficients = _centered(moved.coefficients) if self.by_rows else moved.coefficients
            point = self._vector(coefficients, moved.intercept)  # logits without accumulated rounding
            stalled = (-slope >= before) & (-slope <= STALLED * tolerance)  # only rounding is left
            done, before = done | (-slope <= tolerance) | stalled, -slope
            if done.all():
                break
        else:
            logger.debug("a logistic regression has not converged: %s of %g", slope.flatten(), tolerance)
        self.coefficients, self.intercept = point.coefficients, point.intercept

    def _vector(self, coefficients: Tensor, intercept: Tensor) -> _Vector:
        table = self.gram if self.by_rows else self.rows.mT
        return _Vector(coefficients, intercept, coefficients @ table + intercept)

    def _gradient(self, C: float, of_logits: Tensor, coefficients: Tensor) -> _Gradient:
        """Return the gradient from that of the loss with respect to the logits, and from the coefficients."""
        of_loss = _centered(of_logits) if self.by_rows else of_logits @ self.rows
        return _Gradient(C * of_loss + coefficients, C * of_logits.sum(2, keepdim=True))

    def _product(self, gradient: _Gradient, vector: _Vector) -> Tensor:
        """Return the inner products (B, 1, 1) of gradients and vectors."""
        other = vector.logits - vector.intercept if self.by_rows else vector.coefficients
        return _total(gradient.coefficients * other) + _total(gradient.intercept * vector.intercept)

    def _preconditioner(self, C: float, shares: Tensor) -> _Preconditioner:
        """Return the preconditioner for the mean second derivative of the loss at some predictions."""
        spread = (shares * (1 - shares)).mean((1, 2), keepdim=True) * self.classes / (self.classes - 1)
        scale = C * spread.clamp_min(1e-6)
        matrix = scale * self.gram
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        diagonal += 1 + 2e-7 * diagonal.sum(1, keepdim=True)  # rounding would make it indefinite
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        return _Preconditioner(inverse, 1 / (scale * shares.shape[2]))

    def _newton_direction(
        self, C: float, shares: Tensor, gradient: _Gradient, preconditioner: _Preconditioner
    ) -> _Vector:
        """Solve Hessian · direction = −gradient by conjugate gradients, as closely as `CG_TOLERANCE` says."""

        def downhill(of: _Gradient) -> _Vector:
            coefficients = of.coefficients @ preconditioner.inverse
            return self._vector(coefficients, of.intercept * preconditioner.of_intercept)

        residual, direction = gradient, downhill(gradient)
        solution = direction.plus(-torch.ones_like(preconditioner.of_intercept), direction)  # zero
        product = first = self._product(residual, direction)
        unknowns = residual.coefficients.shape[1] * residual.coefficients.shape[2]
        for _ in range(min(MAX_CG_STEPS, 2 * unknowns)):
            active = product > CG_TOLERANCE**2 * first
            if not active.any():
                break
            of_logits = shares * (direction.logits - (shares * direction.logits).sum(1, keepdim=True))
            image = self._gradient(C, of_logits, direction.coefficients)
            step = torch.where(active, _ratio(product, self._product(image, direction)), 0)
            solution, residual = solution.plus(-step, direction), residual.plus(-step, image)
            following = downhill(residual)
            before, product = product, self._product(residual, following)
            direction = following.plus(_ratio(product, before), direction)
        return solution

    def _step_size(self, C: float, point: _Vector, direction: _Vector, slope: Tensor) -> Tensor:
        """Return step sizes (B, 1, 1): 1, halved until the objective falls; 0 if it does not."""
        step = torch.ones_like(slope)
        start = self._objective(C, point)
        for _ in range(MAX_HALVINGS):
            reached = self._objective(C, point.plus(step, direction))
            falls = reached <= start + 1e-4 * step * slope + ROUNDING * start.abs()
            if falls.all():
                break
            step = torch.where(falls, step, step / 2)
        return torch.where(falls, step, 0)

    def _objective(self, C: float, point: _Vector) -> Tensor:
        """Return the objective (B, 1, 1), summed in float64: rounding would hide small decreases."""
        losses = point.logits.logsumexp(1) - (point.logits * self.expected).sum(1)
        penalty = self._product(_Gradient(point.coefficients, torch.zeros_like(point.intercept)), point)
        return C * losses.double().sum(1)[:, None, None] + penalty.double() / 2


def _products(rows: Tensor) -> Tensor:
    """Return XXᵀ (B, N, N) of rows (B, N, F), which have the mean 0.

    A small multiple of the identity is added: coefficients that cancel each other, of equal rows, would grow
    unseen otherwise.
    """
    products = rows @ rows.mT
    diagonal = products.diagonal(dim1=1, dim2=2)
    diagonal += 1e-7 * diagonal.mean(1, keepdim=True)
    return products


def _centered(of_rows: Tensor) -> Tensor:
    """Return coefficients of rows without their mean, which has no effect as the rows have the mean 0."""
    return of_rows - of_rows.mean(2, keepdim=True)


def _curvature(rows: Tensor) -> Tensor:
    """Return XᵀX (B, F, F) of rows (B, N, F), from every n-th row if there are many."""
    every = max(1, rows.shape[1] // (CURVATURE_ROWS * rows.shape[2]))
    some = rows[:, ::every]
    return some.mT @ some * (rows.shape[1] / some.shape[1])


def _total(values: Tensor) -> Tensor:
    return values.sum((1, 2), keepdim=True)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return the ratio, and 0 where a solved problem has nothing left to divide."""
    return torch.where(denominator > 0, numerator / denominator.clamp_min(1e-38), 0)
