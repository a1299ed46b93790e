"""Multinomial logistic regression in float32, with the objective of scikit-learn's `LogisticRegression`.

The objective is C · Σᵢ −log p(yᵢ) + ½‖W‖², with an intercept that is not penalized. It is minimized by
Newton's method; conjugate gradients solve for the steps. With fewer rows than features the weights are
combinations of the rows, W = XᵀA, and A is computed instead, from the products of the rows with each other.
Problems of the same shape are solved together.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from frossl.errors import NotFiniteError

logger = logging.getLogger("frossl")

TOLERANCE = 1e-9
"""Squared norm of the gradient per row, in the metric of the inverse Hessian, at which a fit ends: about
twice the distance of the mean loss to its minimum."""
MAX_NEWTON_STEPS, MAX_CG_STEPS, MAX_HALVINGS = 40, 200, 20
CG_TOLERANCE = 0.05
"""Norm of the residual at which a Newton step is solved, relative to that of the gradient."""
ROUNDING = 1e-6
"""Relative change of the objective that may be rounding."""
CURVATURE_ROWS = 4
"""Rows per feature that the preconditioner is computed from, if there are more."""


@dataclass(frozen=True)
class Logistic:
    """Fitted weights of B problems."""

    weights: Tensor
    """Weights (B, F, K)."""
    intercept: Tensor
    """Intercepts (B, 1, K)."""

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits (B, M, K) of rows (M, F)."""
        return rows @ self.weights + self.intercept


@dataclass(frozen=True)
class _Vector:
    """Point or direction of B problems, with its logits."""

    coefficients: Tensor
    """Coefficients (B, M, K) of features or of rows."""
    intercept: Tensor
    """Intercepts (B, 1, K)."""
    logits: Tensor
    """Logits (B, N, K), with the intercept."""

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
    """(B, M, K)."""
    intercept: Tensor
    """(B, 1, K)."""

    def plus(self, step: Tensor, other: _Gradient) -> _Gradient:
        """Return this plus `step` (B, 1, 1) times another gradient."""
        coefficients = self.coefficients + step * other.coefficients
        return _Gradient(coefficients, self.intercept + step * other.intercept)


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
        self.expected = F.one_hot(targets, classes).float()
        self.mean = rows.mean(1, keepdim=True)
        self.rows = rows - self.mean
        self.table = self.rows @ self.rows.mT if self.by_rows else self.rows
        """Matrix (B, N, M) whose product with coefficients is the logits without intercept."""
        self.curvature = self.table if self.by_rows else _curvature(self.rows)
        """Hessian (B, M, M) of ½ Σ ‖logits‖², in the coordinates of the coefficients."""
        self.coefficients = torch.zeros(B, self.table.shape[2], classes)
        self.intercept = torch.zeros(B, 1, classes)

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
        return Logistic(weights, self.intercept - self.mean @ weights)

    def start_from(self, other: LogisticRegressions, chosen: Tensor) -> None:
        """Start the next fit from the last solution for a subset of the rows.

        Args:
            other: Regressions on that subset, with the same `by_rows`.
            chosen: Mask (N,) of the subset.
        """
        if self.by_rows:
            self.coefficients[:, chosen] = other.coefficients
        else:
            self.coefficients = other.coefficients
        self.intercept = other.intercept + (self.mean - other.mean) @ other._weights()

    def _weights(self) -> Tensor:
        return self.rows.mT @ self.coefficients if self.by_rows else self.coefficients

    def _minimize(self, C: float) -> None:
        point = self._vector(self.coefficients, self.intercept)
        factor, scale = self._factorize(C, point.logits.softmax(2))
        tolerance = TOLERANCE * C * point.logits.shape[1]
        for _ in range(MAX_NEWTON_STEPS):
            shares = point.logits.softmax(2)
            gradient = self._gradient(C, shares - self.expected, point.coefficients)
            downhill = self._precondition(gradient, factor, scale)
            norm = self._product(gradient, downhill)
            if (norm <= tolerance).all():
                break
            direction = self._newton_direction(C, shares, gradient, downhill, factor, scale)
            step = self._step_size(C, point, direction, self._product(gradient, direction))
            moved = point.plus(step, direction)
            point = self._vector(moved.coefficients, moved.intercept)  # logits without accumulated rounding
        else:
            logger.debug("a logistic regression has not converged: %s of %g", norm.flatten(), tolerance)
        self.coefficients, self.intercept = point.coefficients, point.intercept

    def _vector(self, coefficients: Tensor, intercept: Tensor) -> _Vector:
        return _Vector(coefficients, intercept, self.table @ coefficients + intercept)

    def _gradient(self, C: float, of_logits: Tensor, coefficients: Tensor) -> _Gradient:
        """Return the gradient from that of the loss with respect to the logits, and from the coefficients."""
        of_loss = of_logits if self.by_rows else self.table.mT @ of_logits
        return _Gradient(C * of_loss + coefficients, C * of_logits.sum(1, keepdim=True))

    def _product(self, gradient: _Gradient, vector: _Vector) -> Tensor:
        """Return the inner products (B, 1, 1) of gradients and vectors."""
        other = vector.logits - vector.intercept if self.by_rows else vector.coefficients
        return _total(gradient.coefficients * other) + _total(gradient.intercept * vector.intercept)

    def _factorize(self, C: float, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Return the Cholesky factors (B, M, M) of the preconditioner, and its (B, 1, 1) for intercepts.

        The preconditioner replaces the second derivative of the loss by logits, which differs from image to
        image, by a multiple of the identity.
        """
        spread = (shares * (1 - shares)).mean((1, 2), keepdim=True) * self.classes / (self.classes - 1)
        scale = C * spread.clamp_min(1e-6)
        matrix = scale * self.curvature
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        diagonal += 1 + 2e-7 * diagonal.sum(1, keepdim=True)  # of rounding: below 0 otherwise
        return torch.linalg.cholesky(matrix), scale * shares.shape[1]

    def _precondition(self, gradient: _Gradient, factor: Tensor, scale: Tensor) -> _Vector:
        """Return the solution of the preconditioner for a gradient."""
        return self._vector(torch.cholesky_solve(gradient.coefficients, factor), gradient.intercept / scale)

    def _newton_direction(
        self, C: float, shares: Tensor, gradient: _Gradient, downhill: _Vector, factor: Tensor, scale: Tensor
    ) -> _Vector:
        """Solve Hessian · direction = −gradient by conjugate gradients, so far as `CG_TOLERANCE` asks."""
        residual, direction = gradient, downhill
        product = first = self._product(residual, downhill)
        solution = downhill.plus(-torch.ones_like(product), downhill)  # zero
        for _ in range(MAX_CG_STEPS):
            of_logits = shares * (direction.logits - (shares * direction.logits).sum(2, keepdim=True))
            image = self._gradient(C, of_logits, direction.coefficients)
            step = _ratio(product, self._product(image, direction))
            solution = solution.plus(-step, direction)
            residual = residual.plus(-step, image)
            next_one = self._precondition(residual, factor, scale)
            before, product = product, self._product(residual, next_one)
            if (product <= CG_TOLERANCE**2 * first).all():
                break
            direction = next_one.plus(_ratio(product, before), direction)
        return solution

    def _step_size(self, C: float, point: _Vector, direction: _Vector, slope: Tensor) -> Tensor:
        """Return step sizes (B, 1, 1): 1, halved until the objective falls."""
        step = torch.ones_like(slope)
        start = self._objective(C, point)
        for _ in range(MAX_HALVINGS):
            reached = self._objective(C, point.plus(step, direction))
            falls = reached <= start + 1e-4 * step * slope + ROUNDING * start.abs()
            if falls.all():
                return step
            step = torch.where(falls, step, step / 2)
        return torch.where(falls, step, 0)

    def _objective(self, C: float, point: _Vector) -> Tensor:
        """Return the objective (B, 1, 1) in float64: rounding would hide small decreases."""
        losses = point.logits.logsumexp(2) - (point.logits * self.expected).sum(2)
        penalty = self._product(_Gradient(point.coefficients, torch.zeros_like(point.intercept)), point)
        return C * losses.double().sum(1)[:, None, None] + penalty.double() / 2


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
