"""The FroSSL paper's table of criteria, measured; and its propositions.

rotation     L(zR) = L(z) for every orthogonal R
eigenvalues  the variance term depends on the spectrum of each view only, so it is the same for the Gram
             matrix (sample-contrastive) and for the covariance (dimension-contrastive)
products     no eigenvalues, singular values or factorizations, only matrix products
linear       cost linear in the number of views
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from frossl.objectives import OBJECTIVES
from frossl.objectives.terms import off_diagonal
from tests.support.losses import default_loss, views

PAPER = {  # its table 1
    "barlow": (False, False, True, False),
    "vicreg": (False, False, True, True),
    "wmse": (True, False, False, True),
    "corinfomax": (True, True, False, True),
    "ivne": (True, True, False, True),
    "mmcr": (True, True, False, True),
    "frossl": (True, True, True, True),
}
WRONG_IN_THE_PAPER = {
    ("wmse", "rotation"),  # whitening by Cholesky turns with its input; symmetric whitening would not
    ("frossl", "rotation"),  # with unit columns; with unit rows it holds, tested below
}


def rotation(D: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(scipy.stats.ortho_group.rvs(D, random_state=seed)).reshape(D, D)


def rotated_difference(name: str, **options: Any) -> float:
    """How much the loss changes under a rotation of everything that lives in the space of projections."""
    z, turn = views(3, 12, 5), rotation(5)
    here = there = options
    if name == "moco":
        queue = torch.nn.functional.normalize(views(2, 9, 5, seed=4)[0])
        here, there = {"queue": queue}, {"queue": queue @ turn}
    elif name in ("lejepa", "visreg"):  # many directions, the same for both
        here, there = ({"slices": 20000, "rng": torch.Generator().manual_seed(0)} for _ in range(2))
    loss = OBJECTIVES[name].function
    return abs(loss(z, **here).total.item() - loss(z @ turn, **there).total.item())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_rotation_invariance_is_what_the_table_says(name):
    difference = rotated_difference(name)
    if OBJECTIVES[name].criteria.rotation == "in expectation":
        assert difference < 2e-3  # of random directions
    elif OBJECTIVES[name].criteria.rotation == "yes":
        assert difference < 1e-9
    else:
        assert difference > 1e-3


def test_frossl_is_rotation_invariant_with_unit_rows_and_is_not_with_unit_columns():
    assert rotated_difference("frossl", normalize="rows") < 1e-10
    assert rotated_difference("frossl", normalize="centered") > 1e-3
    assert rotated_difference("frossl", normalize="columns") > 1e-3


def test_wmse_would_be_rotation_invariant_with_symmetric_whitening():
    def symmetric(z: Tensor) -> Tensor:
        white = []
        for x in z - z.mean(1, keepdim=True):
            values, vectors = torch.linalg.eigh(x.T @ x / (len(x) - 1))
            y = x @ (vectors * values.rsqrt()) @ vectors.T
            white.append(y / y.norm(dim=1, keepdim=True))
        return 2 - 2 * (white[0] * white[1]).sum(1).mean()

    z, turn = views(2, 12, 5), rotation(5)
    torch.testing.assert_close(symmetric(z), symmetric(z @ turn), rtol=1e-10, atol=0)


def batch_of_spectrum(eigenvalues: np.ndarray, N: int, kind: str, seed: int) -> Tensor:
    """(N, D) with the given eigenvalues of its covariance, normalized as the objective does."""
    rng = np.random.default_rng(seed)
    D = len(eigenvalues)
    if kind == "rows":  # unit rows: the N × N Gram matrix has a unit diagonal
        padded = np.concatenate([eigenvalues, np.zeros(N - D)])
        gram = scipy.stats.random_correlation.rvs(padded * N / padded.sum(), random_state=rng)
        values, vectors = np.linalg.eigh(gram)
        z = vectors[:, -D:] * np.sqrt(values[-D:].clip(0)) @ scipy.stats.ortho_group.rvs(D, random_state=rng)
    else:
        basis = rng.normal(size=(N, D))
        basis, _ = np.linalg.qr(basis - basis.mean(0))
        if kind == "columns":  # unit columns, centered: the D × D correlation has a unit diagonal
            matrix = scipy.stats.random_correlation.rvs(eigenvalues * D / eigenvalues.sum(), random_state=rng)
            values, vectors = np.linalg.eigh(matrix)
            z = basis @ (vectors * np.sqrt(values)) @ vectors.T
        else:  # centered, as it is
            z = basis * np.sqrt(eigenvalues) @ scipy.stats.ortho_group.rvs(D, random_state=rng)
    return torch.as_tensor(z)


INPUTS = {  # what the variance term needs besides z, and an option that leaves the spectrum as it is
    "corinfomax": {"rows": False},
    "moco": {"queue": torch.eye(11, 5).double()},
    "lejepa": {"slices": torch.eye(5).double()},
    "visreg": {"slices": torch.eye(5).double()},
}
SPREADING = [name for name, loss in OBJECTIVES.items() if loss.criteria.eigenvalues is not None]
"""Those with a variance term."""


def variance_term(name: str, z: Tensor, **options: Any) -> float:
    """All parts of the loss but the invariance, or the loss if that is its only part."""
    terms = OBJECTIVES[name].function(z, **INPUTS.get(name, {}), **options)
    others = [part.item() for key, part in terms.parts.items() if key != "invariance"]
    return sum(others) if others else terms.total.item()


def normalization(name: str, **options: Any) -> str:
    """What the objective gives unit length: the scale of that does not matter."""
    z, rng = views(2, 11, 5), torch.Generator().manual_seed(1)
    plain = variance_term(name, z, **options)
    for kind, shape in {"rows": (2, 11, 1), "columns": (2, 1, 5)}.items():
        scaled = z * (0.5 + torch.rand(shape, generator=rng, dtype=z.dtype))
        if variance_term(name, scaled, **options) == pytest.approx(plain, rel=1e-3):
            return kind
    return "plain"


def spectrum_difference(name: str, **options: Any) -> float:
    """How much the term differs between batches whose views have, once normalized, the same spectra."""
    eigenvalues = np.array([3.0, 1.7, 0.8, 0.4, 0.1])
    kind = normalization(name, **options)
    found = []
    for seed in (0, 10):
        seeds = (seed, seed) if name == "mmcr" else (seed, seed + 1)  # MMCR looks at the mean of the views
        z = torch.stack([batch_of_spectrum(eigenvalues, 11, kind, s) for s in seeds])
        found.append(variance_term(name, z, **options))
    return abs(found[0] - found[1]) / abs(found[0])


@pytest.mark.parametrize("name", SPREADING)
def test_equal_spectra_give_equal_variance_terms_where_the_table_says_so(name):
    difference = spectrum_difference(name)
    if OBJECTIVES[name].criteria.eigenvalues:
        assert difference < 1e-9
    else:
        assert difference > 1e-4


def test_the_others_have_no_variance_term():
    for name in set(OBJECTIVES) - set(SPREADING):
        assert set(default_loss(name, views(2, 6, 4)).parts) == {"invariance"}


def test_mmcr_acts_on_the_spectrum_of_the_mean_view_not_of_each():
    eigenvalues = np.array([3.0, 1.7, 0.8, 0.4, 0.1])
    a, b, c = (batch_of_spectrum(eigenvalues, 11, "rows", seed) for seed in (0, 1, 2))
    together, apart = (default_loss("mmcr", torch.stack(pair)).total for pair in ((a, b), (a, c)))
    assert abs(together - apart) > 1e-3


def test_frossl_acts_on_eigenvalues_with_unit_rows_too():
    assert spectrum_difference("frossl", normalize="rows") < 1e-9


FACTORIZATIONS = {  # what torch calls them -> name, standard count for n × m matrices with k = min(n, m)
    "_linalg_eigh": ("eigenvalues", lambda n, m, k: 9 * k**3),
    "_linalg_svd": ("singular values", lambda n, m, k: 4 * n * m * k + 8 * k**3),
    "linalg_cholesky_ex": ("Cholesky", lambda n, m, k: k**3 / 3),
    "linalg_solve_triangular": ("triangular solve", lambda n, m, k: n * m * k),
}


class Work(TorchDispatchMode):
    """Floating-point operations by kind: torch's counts of products, standard counts of factorizations, one
    for each number that any other operation makes. On the meta device: nothing is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.products = self.rest = 0.0
        self.factorizations: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if func._overloadpacket in flop_registry:
            self.products += flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=out)
        elif name in FACTORIZATIONS:
            kind, count = FACTORIZATIONS[name]
            *batch, n, m = args[-1 if "solve" in name else 0].shape
            self.factorizations[kind] += math.prod(batch) * count(n, m, min(n, m))
        elif "linalg" in name:
            raise AssertionError(f"no count for {name}")
        else:
            tensors = out if isinstance(out, (tuple, list)) else (out,)
            self.rest += sum(t.numel() for t in tensors if isinstance(t, Tensor))
        return out

    @property
    def total(self) -> float:
        return self.products + self.factorizations.total() + self.rest


def work(name: str, V: int, N: int, D: int) -> Work:
    z = torch.empty(V, N, D, device="meta", requires_grad=True)
    options = {"slices": 16} if name in ("lejepa", "visreg") else {}
    if name == "moco":
        options = {"queue": torch.empty(4096, D, device="meta")}
    if name == "wmse":
        options = {"sub_batch": N}
    with Work() as count:
        OBJECTIVES[name].function(z, **options).total.backward()
    return count


def exponents(name: str, V: int, N: int, D: int) -> tuple[float, float, float]:
    """How the work grows with V, N and D, by doubling each."""
    base = work(name, V, N, D).total
    grown = (work(name, *shape).total for shape in ((2 * V, N, D), (V, 2 * N, D), (V, N, 2 * D)))
    return tuple(math.log2(x / base) for x in grown)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_cost_exponents_are_what_the_table_says(name):
    V, N, D = 8, 8192, 128  # many images, so that the leading term leads
    assert exponents(name, V, N, D) == pytest.approx(OBJECTIVES[name].criteria.exponents, abs=0.35)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_factorizations_are_what_the_table_says(name):
    seen = set(work(name, 2, 64, 64).factorizations) - {"triangular solve"}
    claimed = OBJECTIVES[name].criteria.factorization
    assert seen == (set() if claimed == "none" else {claimed})


def test_frossl_takes_two_products_a_view_backward_included_at_any_shape():
    for V, N, D in [(2, 256, 1024), (8, 256, 1024), (2, 1024, 256), (3, 512, 512)]:
        floor = 2 * V * (2 * N * D * min(N, D))
        assert work("frossl", V, N, D).products == floor


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_table_holds_but_for_what_is_listed_as_wrong(name):
    ours = OBJECTIVES[name].criteria
    measured = (
        ours.rotation == "yes",
        ours.eigenvalues,
        ours.factorization == "none",
        ours.exponents[0] <= 1,
    )
    for criterion, paper, found in zip(
        ("rotation", "eigenvalues", "products", "linear"), PAPER[name], measured, strict=True
    ):
        assert (paper == found) == ((name, criterion) not in WRONG_IN_THE_PAPER), criterion


# propositions


def test_proposition_1_with_equal_column_variances_the_norm_is_the_off_diagonal_up_to_a_constant():
    z = torch.randn(2, 9, 5, dtype=torch.float64)
    z = z - z.mean(1, keepdim=True)
    z = 1.7 * z / z.norm(dim=1, keepdim=True)
    covariance = z.mT @ z
    constant = covariance.square().sum((1, 2)) - off_diagonal(covariance)
    torch.testing.assert_close(constant, torch.full_like(constant, 5 * 1.7**4), rtol=1e-12, atol=0)
    ours = default_loss("frossl", z, normalize="centered").parts["variance"]
    trace = 5 * 1.7**2
    by_off_diagonal = ((off_diagonal(covariance) + 5 * 1.7**4) / trace**2).log().sum()
    torch.testing.assert_close(ours, by_off_diagonal, rtol=1e-10, atol=0)


def test_proposition_2_with_equal_row_norms_the_norm_is_the_off_diagonal_of_the_gram_matrix():
    z = torch.randn(2, 9, 5, dtype=torch.float64)
    z = 1.3 * z / z.norm(dim=2, keepdim=True)
    gram = z @ z.mT
    constant = gram.square().sum((1, 2)) - off_diagonal(gram)
    torch.testing.assert_close(constant, torch.full_like(constant, 9 * 1.3**4), rtol=1e-12, atol=0)
    ours = default_loss("frossl", z, normalize="rows").parts["variance"]
    by_off_diagonal = ((off_diagonal(gram) + 9 * 1.3**4) / (9 * 1.3**2) ** 2).log().sum()
    torch.testing.assert_close(ours, by_off_diagonal, rtol=1e-10, atol=0)


def test_proposition_3_doubly_normalized_embeddings_are_both_at_once():
    z = torch.rand(9, 5, dtype=torch.float64) + 0.1
    for _ in range(500):  # equal row norms and equal column norms
        z = z / z.norm(dim=1, keepdim=True)
        z = z / z.norm(dim=0, keepdim=True) * math.sqrt(9 / 5)
    z = z * torch.randn(9, 5).sign()
    covariance, gram = z.T @ z, z @ z.T
    dimension = off_diagonal(covariance) + 5 * (9 / 5) ** 2
    sample = off_diagonal(gram) + 9
    torch.testing.assert_close(dimension, sample, rtol=1e-9, atol=0)
    torch.testing.assert_close(dimension, covariance.square().sum(), rtol=1e-9, atol=0)
    both = torch.stack([z, z])
    rows, columns = (
        default_loss("frossl", both, normalize=how).parts["variance"] for how in ("rows", "columns")
    )
    torch.testing.assert_close(rows, columns, rtol=1e-9, atol=0)
    torch.testing.assert_close(rows, 2 * (dimension / 81).log(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["frossl", "ivne", "mmcr", "tico", "empssl", "vicreg", "barlow", "simclr"])
def test_gram_and_covariance_are_the_same_where_the_table_says_so(name):
    z = torch.rand(6, 6, dtype=torch.float64) + 0.1
    for _ in range(2000):  # unit rows and unit columns: transposing changes neither
        z = z / z.norm(dim=1, keepdim=True)
        z = z / z.norm(dim=0, keepdim=True)
    z = z * torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).sign()
    options = {"normalize": "rows"} if name == "frossl" else {}
    found = []
    for x in (z, z.T):
        parts = default_loss(name, torch.stack([x, x]), **options).parts
        found.append(sum(part for key, part in parts.items() if key != "invariance"))
    same = torch.allclose(*found, rtol=1e-8, atol=0)
    assert same == OBJECTIVES[name].criteria.eigenvalues
