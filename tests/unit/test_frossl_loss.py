"""FroSSL against independent formulas and the figures of the original implementations."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from frossl.objectives import FroSSLLoss, frossl_loss
from frossl.objectives.terms import concentration, distance_to_mean, normalize
from frossl.types import LossTerms
from tests.reference import golden
from tests.reference.frossl import frossl as frossl_by_hand
from tests.reference.frossl import gradient as gradient_by_hand

NORMALIZATIONS = ("centered", "columns", "rows")


def value_and_gradient(z: np.ndarray | Tensor, **options) -> tuple[LossTerms, Tensor]:
    z = torch.as_tensor(z).clone().requires_grad_()
    terms = frossl_loss(z, **options)
    terms.total.backward()
    return terms, z.grad


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize(("N", "D"), [(5, 7), (9, 4)])
@pytest.mark.parametrize("V", [2, 3, 8])
def test_value_and_gradient_equal_an_independent_formula(V, N, D, how, log):
    z = np.random.default_rng((V, N, D)).normal(size=(V, N, D)) + 0.5
    terms, grad = value_and_gradient(z, normalize=how, log=log, invariance_weight=0.9, variance_weight=1.3)

    def by_hand(x: np.ndarray) -> float:
        return frossl_by_hand(x, w=0.9, b=1.3, normalize=how, log=log)

    assert terms.total.item() == pytest.approx(by_hand(z), rel=1e-11, abs=1e-12)
    np.testing.assert_allclose(grad.numpy(), gradient_by_hand(by_hand, z), rtol=1e-6, atol=1e-8)


def options_of(case: dict) -> tuple[dict, float]:
    """Our arguments for a golden case, and the constant by which its value differs from ours."""
    V, N, D, given = case["V"], case["N"], case["D"], case["options"]
    variant = case["id"].split("/")[1]
    if variant == "A":
        return {"normalize": "centered", "invariance_weight": given["w"]}, 0.0
    if variant == "A-2024-02":  # divided by N, not by the trace
        return {"normalize": "centered", "invariance_weight": given["w"]}, 2 * V * math.log(D * D / N)
    if variant == "B":  # has no factor V
        return {"normalize": "rows", "invariance_weight": given["w"] / V}, 0.0
    if variant == "C":
        return {"normalize": "columns", "invariance_weight": given["w"]}, 0.0
    if variant == "eq7":  # has neither 1/N nor V
        return {"normalize": "centered", "invariance_weight": given["gamma"] * N / V}, 0.0
    how = {"centred": "centered"}.get(given["normalize"], given["normalize"])
    return {"normalize": how, "invariance_weight": given["w"], "log": given.get("log", True)}, 0.0


def test_golden_inputs_are_the_ones_the_figures_were_made_with():
    check = golden.GOLDEN["input_check"]
    z = golden.views(*check["shape"])
    np.testing.assert_allclose(z[0, 0, :3], check["first3"], rtol=0, atol=1e-13)
    assert z.sum() == pytest.approx(check["sum"], rel=1e-11)
    assert (z * z).sum() == pytest.approx(check["sum_of_squares"], rel=1e-11)


@pytest.mark.parametrize("case", golden.cases("frossl/"), ids=lambda case: case["id"])
def test_equals_the_figures_of_the_original_implementations(case):
    shape = case["V"], case["N"], case["D"]
    options, constant = options_of(case)
    terms, grad = value_and_gradient(golden.views(*shape), **options)
    assert terms.total.item() + constant == pytest.approx(case["value"], rel=1e-9, abs=1e-11)
    assert (grad.numpy() * golden.direction(*shape)).sum() == pytest.approx(case["grad_dot"], rel=1e-7)
    assert grad.norm().item() == pytest.approx(case["grad_norm"], rel=1e-7)


@pytest.mark.parametrize("V", [2, 3, 8])
def test_pairwise_invariance_is_v_times_the_distance_to_the_mean(V):
    z = torch.randn(V, 6, 5, dtype=torch.float64)
    pairs = sum((a - b).square().sum() for a, b in combinations(z, 2))
    torch.testing.assert_close(V * distance_to_mean(z), pairs, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("N", "D"), [(12, 5), (5, 12), (7, 7)])
def test_gram_and_covariance_give_the_same_concentration_and_gradient(N, D):
    z = torch.randn(3, N, D, dtype=torch.float64, requires_grad=True)
    unit = normalize(z, "centered")
    covariance, gram = unit.mT @ unit, unit @ unit.mT

    def by(matrix: Tensor) -> Tensor:
        return matrix.square().sum((1, 2)) / matrix.diagonal(dim1=1, dim2=2).sum(1).square()

    ours = concentration(unit)
    of_ours, of_gram, of_covariance = (
        torch.autograd.grad(x.log().sum(), z, retain_graph=True)[0] for x in (ours, by(gram), by(covariance))
    )
    for other in (by(gram), by(covariance)):
        torch.testing.assert_close(ours, other, rtol=1e-12, atol=0)
    for other in (of_gram, of_covariance):
        torch.testing.assert_close(of_ours, other, rtol=1e-10, atol=1e-13)


def test_parts_sum_to_the_total_and_rank_is_the_participation_ratio():
    z = torch.randn(3, 20, 6, dtype=torch.float64)
    terms = frossl_loss(z)
    torch.testing.assert_close(terms.parts["invariance"] + terms.parts["variance"], terms.total)
    ranks = []
    for view in z.numpy():
        eigenvalues = np.linalg.eigvalsh(np.corrcoef(view, rowvar=False))
        ranks.append(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
    assert terms.extras["effective_rank"].item() == pytest.approx(np.mean(ranks), rel=1e-10)
    assert not terms.extras["effective_rank"].requires_grad
    assert set(terms.to_floats()) == {"loss", "invariance", "variance", "effective_rank"}


def test_a_list_of_views_is_the_same_as_a_tensor():
    z = torch.randn(3, 8, 4)
    assert torch.equal(frossl_loss(list(z)).total, frossl_loss(z).total)


@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize(
    "z",
    {
        "constant": torch.full((2, 6, 4), 0.3),
        "zero": torch.zeros(2, 6, 4),
        "one constant column": torch.cat([torch.randn(2, 6, 3), torch.full((2, 6, 1), 7.7)], 2),
        "one zero row": torch.cat([torch.randn(2, 5, 4), torch.zeros(2, 1, 4)], 1),
        "equal views": torch.randn(1, 6, 4).expand(2, 6, 4),
        "huge": 1e4 * torch.randn(2, 6, 4),
        "tiny": 1e-6 * torch.randn(2, 6, 4),
        "two images": torch.randn(2, 2, 50),
        "many images": torch.randn(2, 500, 3),
    }.items(),
    ids=lambda item: item[0],
)
def test_degenerate_projections_give_finite_numbers(z, how):
    for log in (True, False):
        terms, grad = value_and_gradient(z[1], normalize=how, log=log)
        assert terms.total.isfinite()
        assert grad.isfinite().all()


def test_near_collapse_the_centered_loss_pushes_harder_the_smaller_the_spread():
    def push(spread: float) -> float:
        noise = torch.randn(2, 64, 4, generator=torch.Generator().manual_seed(0)) @ torch.randn(4, 16)
        _, grad = value_and_gradient(1 + spread * noise.double(), invariance_weight=0.0)
        return grad.norm().item()

    torch.manual_seed(0)
    assert push(1e-3) > 500 * push(1.0) > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_computes_in_float32_inside_autocast_and_for_half_inputs(dtype):
    z = torch.randn(2, 64, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = frossl_loss(z).total
    assert torch.equal(inside, frossl_loss(z).total)
    half = frossl_loss(z.to(dtype)).total
    assert half.dtype == torch.float32
    assert torch.equal(half, frossl_loss(z.to(dtype).float()).total)
    assert frossl_loss(z.double()).total.dtype == torch.float64


def test_presets_are_the_losses_of_their_origin():
    def of(name: str, views: int) -> tuple[str, float]:
        loss = FroSSLLoss.preset(name, views=views)
        return loss.options["normalize"], loss.options["invariance_weight"]

    assert of("paper", 2) == ("centered", 1.4)
    assert of("paper", 8) == ("rows", pytest.approx(2 / 8))
    assert of("released", 2) == of("released", 8) == ("columns", 1.0)
    assert of("default", 2)[0] == "centered"
    z = torch.randn(4, 10, 6)
    assert torch.equal(
        FroSSLLoss.preset("paper", views=4)(z).total,
        frossl_loss(z, normalize="rows", invariance_weight=0.5).total,
    )


@pytest.mark.parametrize(
    ("z", "words"),
    [
        (torch.randn(6, 4), r"\(6, 4\)"),
        (torch.randn(1, 6, 4), r"\(1, 6, 4\).*V ≥ 2"),
        (torch.randn(2, 1, 4), r"\(2, 1, 4\).*N ≥ 2"),
        ([torch.randn(6, 4), torch.randn(5, 4)], r"\(6, 4\), \(5, 4\)"),
        (torch.ones(2, 6, 4, dtype=torch.int64), "int64"),
        ([], r"\(0,\)"),
    ],
)
def test_wrong_shapes_are_refused_by_name(z, words):
    with pytest.raises(ValueError, match=words):
        frossl_loss(z)


def test_wrong_names_are_refused_with_the_nearest():
    with pytest.raises(Exception, match="did you mean rows"):
        frossl_loss(torch.randn(2, 4, 4), normalize="row")
    with pytest.raises(Exception, match="did you mean paper"):
        FroSSLLoss.preset("papr")
