"""Criteria by which the FroSSL paper compares objectives; tests measure them for every objective here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Criteria:
    """Properties of an objective."""

    rotation: Literal["yes", "no", "in expectation"]
    """Whether L(zR) = L(z) for every orthogonal R."""
    eigenvalues: bool | None
    """Whether the variance term depends on the spectrum of each view only; None without a variance term.

    Such a term is the same for the Gram matrix and for the covariance: sample- and dimension-contrastive.
    """
    factorization: Literal["none", "eigenvalues", "singular values", "Cholesky"]
    """Matrix factorization that the loss computes."""
    exponents: tuple[int, int, int]
    """Exponents of V, N and D in the leading cost, for N ≫ D and many views."""
    remark: str = ""
    """Note for the documentation."""
