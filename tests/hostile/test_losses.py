"""Losses in other people's hands: any layout in memory, second derivatives, numbers at the end of float32."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import frossl
from frossl.objectives import (
    OBJECTIVES,
    log_det_divergence,
    petz_renyi_divergence,
    von_neumann_divergence,
)
from frossl.optim import LARS
from tests.contract.cases import CASES, Case
from tests.support.losses import gradient

V, N, D = 3, 6, 4


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def views(V: int = V, N: int = N, D: int = D, dtype: torch.dtype = torch.float64) -> Tensor:
    return (numbers(N, D) + 0.5 * numbers(V, N, D, seed=1) + 0.2).to(dtype)


# layouts: whatever the strides, the numbers are those of a contiguous copy


def negated(z: Tensor) -> Tensor:
    """The imaginary part of a conjugate: strided, and negated only when it is read."""
    return torch.complex(torch.zeros_like(z), -z).conj().imag


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "views behind images, as z[:, v]": lambda z: z.transpose(0, 1).contiguous().transpose(0, 1),
    "columns in front of images, as z.mT": lambda z: z.mT.contiguous().mT,
    "every axis turned": lambda z: z.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "every other column of a wider tensor": lambda z: z.repeat_interleave(2, dim=2)[:, :, ::2],
    "a window in a larger tensor": lambda z: nn.functional.pad(z, (3, 2, 1, 1))[:, 1:-1, 3:-2],
    "negated when read": negated,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_strided_view_gives_the_loss_and_gradient_of_its_copy(case: Case, dtype):
    plain = views(dtype=dtype)
    copy, expected = gradient(case.loss, plain)
    tight = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-11}
    for turn in LAYOUTS.values():
        z = turn(plain)
        assert not z.is_contiguous()
        assert torch.equal(z, plain)
        terms, found = gradient(case.loss, z)
        torch.testing.assert_close(terms.total, copy.total, **tight)
        torch.testing.assert_close(found, expected, **tight)
        for name, value in copy.extras.items():
            torch.testing.assert_close(terms.extras[name], value, **tight)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_views_cut_from_one_tensor_are_as_good_as_copies(case: Case):
    plain = views()
    extra = {k: torch.as_tensor(v) for k, v in case.extra(V, N, D).items()}
    expected = case.loss(plain).total
    beside = torch.cat(list(plain), dim=1)
    between = plain.transpose(0, 1).contiguous()
    for cut in (beside.chunk(V, dim=1), between.unbind(1), [view.T.contiguous().T for view in plain]):
        listed = OBJECTIVES[case.name].function(list(cut), **{**case.options, **extra}).total
        torch.testing.assert_close(listed, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_expanded_view_gives_the_loss_of_its_copy(case: Case):
    for z in (views(1).expand(V, N, D), views(V, N, 1).expand(V, N, D)):
        terms, found = gradient(case.loss, z)
        copy, expected = gradient(case.loss, z.contiguous())
        scale = max(1.0, *(part.abs().item() for part in copy.parts.values()))
        torch.testing.assert_close(terms.total, copy.total, rtol=1e-9, atol=1e-9 * scale)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7 * expected.abs().max().item())


@pytest.mark.parametrize("normalize", ["centered", "columns", "rows"])
def test_a_strided_view_gives_the_same_loss_at_every_call(normalize):
    loss = frossl.FroSSLLoss(normalize=normalize)
    z = views(2, 64, 32, dtype=torch.float32)
    expected = loss(z).total
    for turn in LAYOUTS.values():
        for junk in (1e6, -3.0, math.nan):  # what memory may hold that was freed just before
            del_me = [torch.full((2, 2, 32), junk) for _ in range(8)]
            del del_me
            assert torch.equal(loss(turn(z)).total, expected)


# derivatives


def second_difference(f: Callable[[float], float], h: float = 2e-4) -> float:
    """f″(0), from seven values, to the sixth order in h."""
    weights = np.array([2, -27, 270, -490, 270, -27, 2]) / 180
    return float(weights @ [f(k * h) for k in range(-3, 4)]) / h**2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_second_derivatives_are_those_of_the_definition(case: Case):
    """Against differences of the reference in NumPy, where what carries no gradient stands still."""
    z, s = views().requires_grad_(), views().numpy()
    (slope,) = torch.autograd.grad(case.loss(z).total, z, create_graph=True)
    for seed in (3, 4):
        u = numbers(V, N, D, seed=seed)
        (product,) = torch.autograd.grad((slope * u).sum(), z, retain_graph=True)
        expected = second_difference(lambda t, u=u: case.reference(s + t * u.numpy(), s))
        assert (product * u).sum().item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["frossl", "mmcr", "vicreg"])
def test_a_gradient_penalty_is_trained_by_its_own_gradient(name):
    def penalty(z: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(OBJECTIVES[name]()(z).total, z, create_graph=True)
        return slope.square().sum()

    z, u = views().requires_grad_(), numbers(V, N, D, seed=5)
    (found,) = torch.autograd.grad(penalty(z), z)
    far = [penalty((z + t * u).detach().requires_grad_()).item() for t in (-1e-5, 1e-5)]
    assert (found * u).sum().item() == pytest.approx((far[1] - far[0]) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_gradient_that_can_be_differentiated_is_the_same_gradient(name):
    case = next(case for case in CASES if case.name == name)
    z = views().requires_grad_()
    (graphed,) = torch.autograd.grad(2.5 * case.loss(z).total, z, create_graph=True)
    (plain,) = torch.autograd.grad(2.5 * case.loss(z).total, z)
    torch.testing.assert_close(graphed.detach(), plain, rtol=1e-9, atol=1e-12)


def test_only_some_views_of_a_list_may_want_a_second_derivative():
    listed = [view.clone() for view in views()]
    listed[1].requires_grad_()
    (slope,) = torch.autograd.grad(frossl.frossl_loss(listed).total, listed[1], create_graph=True)
    (found,) = torch.autograd.grad(slope.square().sum(), listed[1])
    z = views().requires_grad_()
    (whole,) = torch.autograd.grad(frossl.frossl_loss(z).total, z, create_graph=True)
    (expected,) = torch.autograd.grad(whole[1].square().sum(), z)
    torch.testing.assert_close(found, expected[1], rtol=1e-9, atol=1e-12)


def test_autocast_does_not_reach_into_a_second_derivative():
    z = views(dtype=torch.float32).requires_grad_()
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            (slope,) = torch.autograd.grad(frossl.frossl_loss(z).total, z, create_graph=True)
        found.append(slope.detach())
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, in forward mode
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_mode_and_torch_func_agree_with_the_gradient(case: Case):
    z, u = views(), numbers(V, N, D, seed=3)
    _, slope = gradient(case.loss, z)
    along = (slope * u).sum()

    def total(x: Tensor) -> Tensor:
        return case.loss(x).total

    _, found = torch.func.jvp(total, (z,), (u,))
    torch.testing.assert_close(found, along, rtol=1e-8, atol=1e-10)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(total(forward_ad.make_dual(z, u))).tangent
        with torch.no_grad():
            quiet = forward_ad.unpack_dual(total(forward_ad.make_dual(z, u))).tangent
    torch.testing.assert_close(tangent, along, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(quiet, along, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(torch.func.grad(total)(z), slope, rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, in forward mode
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_hessian_is_the_same_by_every_way_of_torch(name):
    case = next(case for case in CASES if case.name == name)

    def total(x: Tensor) -> Tensor:
        return case.loss(x).total

    z = views(2, 3, 2)
    by_reverse = torch.autograd.functional.hessian(total, z)
    assert by_reverse.any()
    torch.testing.assert_close(torch.func.hessian(total)(z), by_reverse, rtol=1e-7, atol=1e-9)


def spread(seed: int) -> Tensor:
    x = numbers(12, 4, seed=seed)
    return x.T @ x / 12


DIVERGENCES = {
    "log det": log_det_divergence,
    "von Neumann": von_neumann_divergence,
    **{f"Petz-Rényi {a}": lambda x, y, a=a: petz_renyi_divergence(x, y, a) for a in (0.5, 2.0, 3.0)},
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, in forward mode
@pytest.mark.parametrize("name", DIVERGENCES)
def test_relative_entropies_have_second_derivatives(name):
    def divergence(a: Tensor, b: Tensor) -> Tensor:
        return DIVERGENCES[name]((a + a.T) / 2, (b + b.T) / 2)

    a, b = spread(0).requires_grad_(), spread(1).requires_grad_()
    assert torch.autograd.gradcheck(divergence, (a, b))
    assert torch.autograd.gradgradcheck(divergence, (a, b))
    a, b = a.detach(), b.detach()
    by_reverse = torch.autograd.functional.hessian(lambda x: divergence(x, b), a)
    torch.testing.assert_close(torch.func.hessian(divergence)(a, b), by_reverse, rtol=1e-7, atol=1e-9)


# the ends of float32


def right_or_not_finite(loss: Callable, z: Tensor) -> None:
    """Value, parts, extras and gradient are those of float64, or not finite, or refused as not finite."""
    try:
        terms, found = gradient(loss, z)
    except frossl.errors.NotFiniteError:
        return
    exact, expected = gradient(loss, z.double())
    scale = max(1.0, *(part.abs().item() for part in exact.parts.values()))
    if not (terms.total.isfinite() and found.isfinite().all()):
        assert z.abs().max() > 1e9
        return
    assert terms.total.item() == pytest.approx(exact.total.item(), rel=1e-3, abs=1e-3 * scale)
    for name in terms.extras:
        if z.abs().max() > 1:
            assert terms.extras[name].item() == pytest.approx(exact.extras[name].item(), rel=1e-3)
    # a tiny z leaves rounding errors of exp(0) and the like in gradients that nearly cancel
    assert (found.double() - expected).norm() <= 1e-2 * expected.norm() + 1e-6 * (z.abs().max() < 1)


def scaled(scale: float, *, offset: float = 0.0) -> Tensor:
    z = views(3, 9, 5)
    return (scale * (z / z.abs().max() + offset)).float()


HUGE = [1e10, 1e15, 1e18, 1e19, 1e20, 1e25, 1e30, 1e37]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_huge_projections_give_the_right_loss_or_none(case: Case):
    for scale in HUGE:
        right_or_not_finite(case.loss, scaled(scale))
        right_or_not_finite(case.loss, scaled(scale, offset=3.0))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_huge_view_or_row_or_column_gives_the_right_loss_or_none(case: Case):
    for scale in (1e20, 1e30):
        for axis in range(3):
            z = scaled(1.0)
            z.select(axis, 1).mul_(scale)
            right_or_not_finite(case.loss, z)


@pytest.mark.parametrize("case", [c for c in CASES if str(c) != "iso-euclidean"], ids=str)
def test_tiny_projections_give_the_right_loss(case: Case):
    for scale in (1e-12, 1e-18, 1e-25, 1e-38):
        right_or_not_finite(case.loss, scaled(scale))


@pytest.mark.parametrize("alpha", [63, 64, 65, 200])
def test_entropies_of_large_orders_are_those_of_the_eigenvalues(alpha):
    z = torch.randn(2, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for view, found in zip(z.numpy(), frossl.renyi_variance(z, alpha), strict=True):
        shares = np.linalg.svd(view, compute_uv=False) ** 2
        expected = np.log(((shares / shares.sum()) ** alpha).sum()) / (alpha - 1)
        assert found.item() == pytest.approx(expected, rel=1e-9)


def test_an_order_beyond_all_numbers_is_not_an_error_of_torch():
    assert frossl.renyi_variance(torch.randn(2, 12, 4), 1e30).shape == (2,)


def test_a_loss_of_huge_projections_is_not_a_collapse():
    for normalize in ("centered", "columns", "rows"):
        terms = frossl.frossl_loss(scaled(1e20), normalize=normalize)
        rank = terms.extras["effective_rank"].item()
        assert math.isnan(terms.total.item()) == math.isnan(rank)
        assert rank != pytest.approx(1)


# LARS


@pytest.mark.parametrize("clip", [True, False])
def test_lars_leaves_weights_alone_that_the_loss_does_not_reach(clip):
    start = numbers(4, 3)
    reached, idle = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    unused = nn.Parameter(start.clone())
    optimizer = LARS([reached, idle, unused], lr=0.3, weight_decay=0.1, clip=clip)
    for _ in range(5):
        reached.grad, idle.grad = numbers(4, 3, seed=1), torch.zeros(4, 3, dtype=torch.float64)
        optimizer.step()
    assert torch.equal(idle, start)
    assert torch.equal(unused, start)
    assert not torch.equal(reached, start)


def test_lars_moves_weights_that_are_zero():
    p = nn.Parameter(torch.zeros(2, 2))
    p.grad = torch.ones(2, 2)
    LARS([p], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(p.detach(), torch.full((2, 2), -0.1))
