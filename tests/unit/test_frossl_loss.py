"""What is FroSSL's own: the closed form, duality, effective rank, presets. The rest is in tests/contract."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from frossl.errors import InputError
from frossl.objectives import FroSSLLoss, frossl_loss, renyi_variance
from frossl.objectives.terms import concentration, distance_to_mean, normalize
from frossl.types import LossTerms

NORMALIZATIONS = ("centered", "columns", "rows")


def by_autograd(z: Tensor, how: str, *, log: bool = True, w: float = 1.4) -> Tensor:
    """The definition, term by term, differentiated by autograd."""
    unit = normalize(z, how)
    spread = concentration(unit)
    return (spread.log() if log else spread).sum() + w * len(z) / z.shape[1] * distance_to_mean(unit)


def value_and_gradient(z: np.ndarray | Tensor, **options) -> tuple[LossTerms, Tensor]:
    z = torch.as_tensor(z).clone().requires_grad_()
    terms = frossl_loss(z, **options)
    terms.total.backward()
    return terms, z.grad


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize(("N", "D"), [(530, 700), (700, 530), (9, 30), (30, 9)])  # the large ones in panels
def test_the_closed_form_is_the_gradient_of_the_definition(N, D, how, log):
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(N, D, generator=rng).double() + torch.randn(3, N, D, generator=rng).double() + 0.3
    z[:, :, 3] = 2.0  # a constant column
    z[1, 4] = 0.0  # a row of zeros
    terms, grad = value_and_gradient(z, normalize=how, log=log)
    z.requires_grad_()
    plain = by_autograd(z, how, log=log)
    plain.backward()
    torch.testing.assert_close(terms.total, plain, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(grad, z.grad, rtol=1e-8, atol=1e-11 * z.grad.abs().max().item())


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4])
def test_the_closed_form_is_exact_in_float32_where_columns_vary_little(spread):
    rng = torch.Generator().manual_seed(0)
    z = 0.3 + spread * torch.randn(2, 1024, 24, generator=rng)
    z[:, :, 5] = 0.3  # constant, and not a sum of powers of two
    terms, grad = value_and_gradient(z, invariance_weight=0.1)
    exact, exact_grad = value_and_gradient(z.double(), invariance_weight=0.1)
    tolerance = 1e-5 + 2e-6 / spread  # what float32 has left of the spread
    assert terms.total.item() == pytest.approx(exact.total.item(), rel=tolerance)
    rank = exact.extras["effective_rank"].item()
    assert terms.extras["effective_rank"].item() == pytest.approx(rank, rel=tolerance)
    assert (grad - exact_grad).norm() < 20 * tolerance * exact_grad.norm()
    assert not grad[:, :, 5].any()


def test_the_closed_form_serves_lists_part_gradients_scaled_losses_and_second_backwards():
    views = [torch.randn(8, 5, dtype=torch.float64) for _ in range(3)]
    views[1].requires_grad_()
    total = 3.0 * frossl_loss(views).total
    (first,) = torch.autograd.grad(total, views[1], retain_graph=True)
    (second,) = torch.autograd.grad(total, views[1])
    assert torch.equal(first, second)
    _, whole = value_and_gradient(torch.stack([view.detach() for view in views]))
    torch.testing.assert_close(first, 3 * whole[1], rtol=1e-12, atol=0)
    with torch.no_grad():
        assert not frossl_loss(views).total.requires_grad


def test_gradients_and_values_outlive_later_calls_that_reuse_scratch_memory():
    z = torch.randn(3, 2, 64, 48)
    expected = [value_and_gradient(one.clone()) for one in z]
    kept = [(terms.total.item(), gradient.clone()) for terms, gradient in expected]
    with ThreadPoolExecutor(2) as pool:
        with torch.inference_mode():
            frossl_loss(torch.randn(2, 64, 48))
        again = list(pool.map(lambda one: value_and_gradient(one.clone()), [*z] * 10))
    for i, (terms, gradient) in enumerate([*expected, *again]):
        assert terms.total.item() == kept[i % 3][0]
        assert torch.equal(gradient, kept[i % 3][1])


def test_inputs_are_not_changed():
    for how in NORMALIZATIONS:
        z = torch.randn(2, 40, 6)
        before = z.clone()
        value_and_gradient(z, normalize=how)
        frossl_loss(list(z), normalize=how)
        assert torch.equal(z, before)


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


def test_the_rank_is_the_participation_ratio():
    z = torch.randn(3, 20, 6, dtype=torch.float64)
    terms = frossl_loss(z)
    ranks = []
    for view in z.numpy():
        eigenvalues = np.linalg.eigvalsh(np.corrcoef(view, rowvar=False))
        ranks.append(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
    assert terms.extras["effective_rank"].item() == pytest.approx(np.mean(ranks), rel=1e-10)
    assert set(terms.to_floats()) == {"loss", "invariance", "variance", "effective_rank"}


def test_near_collapse_only_the_centered_loss_pushes_harder_the_smaller_the_spread():
    def push(spread: float, how: str) -> float:
        rng = torch.Generator().manual_seed(0)
        noise = torch.randn(2, 64, 4, generator=rng) @ torch.randn(4, 16, generator=rng)
        _, grad = value_and_gradient(1 + spread * noise.double(), invariance_weight=0.0, normalize=how)
        return grad.norm().item()

    assert push(1e-3, "centered") > 500 * push(1.0, "centered") > 0
    assert push(1e-3, "rows") < 0.1 * push(1.0, "rows")
    assert push(1e-5, "columns") < push(1e-2, "columns")


def test_one_number_leads_from_ivne_through_frossl_and_beyond():
    z = torch.randn(2, 30, 6, dtype=torch.float64)
    orders = [0.5, 1, 1.001, 1.5, 2, 2.001, 3, 3.001, 4]
    ranks = [frossl_loss(z, alpha=alpha).extras["effective_rank"].item() for alpha in orders]
    assert ranks == sorted(ranks, reverse=True)  # Rényi entropies fall with their order
    for near in (1, 4, 6):  # eigenvalues, products and the Frobenius norm meet
        assert ranks[near] == pytest.approx(ranks[near + 1], rel=1e-3)
    with pytest.raises(ValueError, match="alpha is -1"):
        renyi_variance(z, alpha=-1)
    with pytest.raises(ValueError, match="alpha = 3"):
        frossl_loss(z, alpha=3, log=False)


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


def test_wrong_names_are_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean rows"):
        frossl_loss(torch.randn(2, 4, 4), normalize="row")
    with pytest.raises(InputError, match="did you mean paper"):
        FroSSLLoss.preset("papr")
    with pytest.raises(InputError, match="did you mean invariance_weight"):
        FroSSLLoss(invariance_wieght=1.0)
