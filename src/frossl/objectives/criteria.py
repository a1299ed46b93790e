"""Criteria by which the FroSSL paper compares objectives, for each objective here; tests measure them."""

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


CRITERIA: dict[str, Criteria] = {
    "frossl": Criteria(
        "no",
        True,
        "none",
        (1, 1, 2),
        "rotation invariant with unit rows; not with unit columns, against the paper's table",
    ),
    "vicreg": Criteria("no", False, "none", (1, 1, 2), "the hinge acts on single columns"),
    "barlow": Criteria("no", False, "none", (2, 1, 2), "compares columns across views"),
    "wmse": Criteria(
        "no",
        False,
        "Cholesky",
        (1, 1, 2),
        "symmetric whitening would be rotation invariant; Cholesky's is not, against the paper's table",
    ),
    "corinfomax": Criteria(
        "yes",
        True,
        "Cholesky",
        (1, 1, 2),
        "the running covariance's spectrum; D³ besides; state of D² a view",
    ),
    "ivne": Criteria("yes", True, "eigenvalues", (1, 1, 2), "min(N, D)³ besides"),
    "mmcr": Criteria(
        "yes",
        True,
        "singular values",
        (0, 1, 2),
        "the spectrum is that of the mean view; V·N·D for the mean, singular values once",
    ),
    "simclr": Criteria("yes", False, "none", (2, 2, 1)),
    "moco": Criteria("yes", False, "none", (1, 1, 1), "times the length of the queue"),
    "swav": Criteria("no", None, "none", (1, 1, 1), "D is the number of prototypes"),
    "simsiam": Criteria("yes", None, "none", (1, 1, 1), "no variance term: the predictor prevents collapse"),
    "byol": Criteria(
        "yes", None, "none", (1, 1, 1), "no variance term: predictor and teacher prevent collapse"
    ),
    "dino": Criteria("no", None, "none", (1, 1, 1), "D is the number of outputs"),
    "tico": Criteria("yes", True, "none", (1, 1, 2), "with fresh state, the online views' spectrum"),
    "empssl": Criteria("yes", True, "Cholesky", (1, 1, 2), "min(N, D)³ besides"),
    "matrixssl": Criteria("yes", False, "none", (2, 1, 2), "D³ a pair of views besides"),
    "spectral": Criteria("yes", False, "none", (2, 2, 1)),
    "iso": Criteria("yes", None, "eigenvalues", (1, 1, 2), "they make its predictor; D³ a view besides"),
    "lejepa": Criteria("in expectation", False, "none", (1, 1, 1), "times the number of slices"),
    "visreg": Criteria("no", False, "none", (1, 1, 1), "times the number of slices"),
}
"""Criteria of every objective by name."""
