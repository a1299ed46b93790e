"""What holds for every objective: order, precision, finite numbers, descent, refusal of bad input."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from frossl.objectives import OBJECTIVES
from tests.contract.cases import CASES, Case
from tests.support.losses import default_loss, descend, gradient, near_collapse, views

PLAIN = [case for case in CASES if not case.ordered]


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_order_of_images_and_of_views_of_one_size_does_not_matter(case: Case):
    V, N, D = 5, 7, 4
    z = views(V, N, D)
    total, grad = gradient(case.loss, z)
    images = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    # where two global views lead, they and the others change places among themselves
    leading = 2 if case.name in ("swav", "dino") or case.options.get("global_views") == 2 else 0
    order = torch.tensor([1, 0, 4, 2, 3]) if leading else torch.tensor([4, 2, 0, 1, 3])
    swap = order if case.label != "queue" else torch.tensor([0, 1, 4, 2, 3])  # its queue goes with a view
    moved_total, moved_grad = gradient(case.loss, z[swap][:, images])
    torch.testing.assert_close(moved_total.total, total.total, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(moved_grad, grad[swap][:, images], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_agrees_with_float64(case: Case):
    for shape in [(3, 9, 5), (3, 5, 9)]:
        z = views(*shape, dtype=torch.float32)
        single, rough = gradient(case.loss, z)
        double, exact = gradient(case.loss, z.double())
        assert single.total.dtype == torch.float32
        assert double.total.dtype == torch.float64
        scale = max(1.0, *(abs(part.item()) for part in double.parts.values()))
        assert single.total.item() == pytest.approx(double.total.item(), rel=1e-5, abs=2e-5 * scale)
        assert (rough.double() - exact).norm() <= 2e-3 * exact.norm() + 1e-6


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_sum_to_the_total_and_only_the_total_carries_gradient(case: Case):
    terms = case.loss(views(3, 6, 4).requires_grad_())
    torch.testing.assert_close(sum(terms.parts.values()), terms.total.detach(), rtol=1e-12, atol=1e-14)
    assert terms.total.requires_grad
    assert terms.total.shape == ()
    for tensor in (*terms.parts.values(), *terms.extras.values(), *terms.state.values()):
        assert not tensor.requires_grad


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_list_of_views_is_the_same_as_a_tensor(case: Case):
    z = views(3, 6, 4)
    extra = {k: torch.as_tensor(v) for k, v in case.extra(3, 6, 4).items()}
    listed = OBJECTIVES[case.name].function(list(z), **{**case.options, **extra})
    assert torch.equal(listed.total, case.loss(z).total)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_computes_in_float32_inside_autocast_and_for_half_inputs(name):
    z = views(3, 16, 8, dtype=torch.float32)
    outside = default_loss(name, z).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(default_loss(name, z).total, outside)
    for dtype in (torch.bfloat16, torch.float16):
        half, grad = gradient(lambda x: default_loss(name, x), z.to(dtype))
        assert half.total.dtype == torch.float32
        assert grad.dtype == dtype
        assert torch.equal(half.total, default_loss(name, z.to(dtype).float()).total)


ONE_DIRECTION = ("moco", "tico", "iso", "swav", "dino")
"""Those whose views play different parts; their order is tested with `symmetric`, or among equals."""


DEGENERATE = {
    "constant": torch.full((2, 6, 4), 0.3),
    "constant rows": torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(1)).expand(2, 6, 4),
    "zero": torch.zeros(2, 6, 4),
    "one view zero": torch.cat([views(1, 6, 4), torch.zeros(1, 6, 4)]),
    "one constant column": torch.cat([views(2, 6, 3), torch.full((2, 6, 1), 7.7)], 2),
    "one zero row": torch.cat([views(2, 5, 4), torch.zeros(2, 1, 4)], 1),
    "one column": views(2, 6, 1),
    "duplicated images": views(2, 3, 4).repeat(1, 2, 1),
    "duplicated columns": views(2, 6, 2).repeat(1, 1, 2),
    "equal views": views(1, 6, 4).expand(2, 6, 4),
    "orthonormal": torch.eye(6).expand(2, 6, 6),
    "huge": 1e4 * views(2, 6, 4),
    "tiny": 1e-6 * views(2, 6, 4),
    "two images": views(2, 2, 50),
    "many images": views(2, 500, 3),
}


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_degenerate_projections_give_finite_numbers(name, kind):
    for dtype in (torch.float32, torch.float64):
        terms, grad = gradient(lambda x: default_loss(name, x), DEGENERATE[kind].to(dtype))
        assert terms.total.isfinite()
        assert grad.isfinite().all()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", ["constant", "zero", "duplicated images", "tiny", "huge"])
def test_degenerate_projections_give_finite_numbers_whatever_the_options(case: Case, kind):
    terms, grad = gradient(case.loss, DEGENERATE[kind].float())
    assert terms.total.isfinite()
    assert grad.isfinite().all()


@pytest.mark.parametrize("name", OBJECTIVES)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    V=st.integers(2, 5),
    N=st.integers(2, 12),
    D=st.integers(1, 12),
    scale=st.floats(-6, 4).map(lambda power: 10.0**power),
    offset=st.sampled_from([0.0, 1.0, -30.0]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    seed=st.integers(0, 1000),
)
def test_loss_and_gradient_are_finite_for_any_shape_scale_and_dtype(
    name, V, N, D, scale, offset, dtype, seed
):
    limit = 6e4 if dtype == torch.float16 else 1e30
    z = (scale * (views(V, N, D, seed=seed) + offset)).clamp(-limit, limit).to(dtype)
    terms = default_loss(name, z)
    assert terms.total.isfinite()
    # the gradient of a tiny or huge half precision input may be too large for half precision
    _, grad = gradient(lambda x: default_loss(name, x), z if dtype == torch.float64 else z.float())
    assert grad.isfinite().all()
    # order of images and (where none leads) of views; other precision
    reordered = default_loss(name, z.flip(1) if name in ONE_DIRECTION else z.flip(0, 1)).total
    size = max(1.0, *(part.abs().item() for part in terms.parts.values()))
    if name not in ("lejepa", "visreg"):  # sums of many slices, tested above
        assert reordered.item() == pytest.approx(terms.total.item(), rel=2e-3, abs=2e-3 * size)


AVOIDING = {name for name, loss in OBJECTIVES.items() if loss.criteria.eigenvalues is not None} - {"moco"}
"""Those with a term that keeps embeddings apart. The others leave that to a predictor, a teacher, a queue
of other images or the balance of prototypes."""


def module_loss(name: str):
    """A Module in training mode: its state moves, and random slices are new in every step."""
    if name == "moco":  # against a queue that stays, as nothing else would be compared with
        return lambda z: default_loss(name, z).total
    options = {"slices": 64} if name in ("lejepa", "visreg") else {}
    options |= {"symmetric": True} if name == "tico" else {}  # else the last view is a target that stays
    loss, rng = OBJECTIVES[name](**options), torch.Generator().manual_seed(0)
    inputs = {"rng": rng} if options.get("slices") else {}
    return lambda z: loss(z, **inputs).total


@pytest.mark.parametrize("name", OBJECTIVES)
def test_descent_on_free_embeddings_reduces_the_loss_and_leaves_collapse(name):
    first, last, rank = descend(module_loss(name), near_collapse(2, 64, 16))
    assert last <= first
    if name in AVOIDING:
        assert last < first - 1e-3 * abs(first)
        assert rank > 4


def printed_pseudocode(z: Tensor) -> Tensor:
    """The FroSSL paper's V-view listing to the letter: minus the logarithm of the norm, added."""
    total = z.new_zeros(())
    for view in z:
        view = torch.nn.functional.normalize(view, dim=1)
        covariance = view.T @ view
        total = total - 2 * torch.log((covariance / covariance.trace()).norm())
        total = total + torch.nn.functional.mse_loss(view, torch.nn.functional.normalize(z, dim=2).mean(0))
    return total


def test_the_papers_printed_pseudocode_collapses():
    _, _, rank = descend(printed_pseudocode, near_collapse(2, 64, 16))
    assert rank < 4


@pytest.mark.parametrize("how", ["rows", "columns"])
def test_frossl_without_centering_leaves_collapse_here_too(how):
    """Adam's steps do not depend on the size of the gradient, which vanishes at collapse with unit rows."""
    _, _, rank = descend(lambda z: default_loss("frossl", z, normalize=how).total, near_collapse(2, 64, 16))
    assert rank > 4


BAD = {
    "one view as a matrix": (torch.randn(6, 4), r"\(6, 4\)"),
    "one view": (torch.randn(1, 6, 4), r"\(1, 6, 4\).*V ≥ 2"),
    "one image": (torch.randn(2, 1, 4), r"\(2, 1, 4\).*N ≥ 2"),
    "four axes": (torch.randn(2, 3, 4, 5), r"\(2, 3, 4, 5\)"),
    "a number": (torch.tensor(1.0), r"\(\)"),
    "different N": ([torch.randn(6, 4), torch.randn(5, 4)], r"\(6, 4\), \(5, 4\)"),
    "nothing": ([], r"\(0,\)"),
    "two dtypes": ([torch.ones(6, 4), torch.ones(6, 4).double()], "float64"),
    "integers": (torch.ones(2, 6, 4, dtype=torch.int64), "int64"),
    "NaN": (
        torch.randn(2, 6, 4).index_fill(1, torch.tensor([3]), torch.nan),
        "nan at view 0, image 3, column 0",
    ),
    "infinity": (
        torch.randn(2, 6, 4).index_fill(2, torch.tensor([1]), torch.inf),
        "inf at view 0, image 0, column 1",
    ),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_bad_input_is_refused_by_shape_or_value(name, kind):
    z, words = BAD[kind]
    options = {"queue": torch.randn(7, 4)} if name == "moco" else {}
    with pytest.raises(ValueError, match=words):
        OBJECTIVES[name].function(z, **options)
    with pytest.raises(ValueError, match=words):
        OBJECTIVES[name]()(z)


def test_bad_input_is_refused_by_every_order_of_entropy():
    for alpha in (0.5, 1, 2, 3):
        with pytest.raises(ValueError, match="nan at view 0"):
            OBJECTIVES["frossl"].function(BAD["NaN"][0], alpha=alpha)
