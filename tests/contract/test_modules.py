"""Modules: options, presets, running state, compilation; and the relative entropies."""

from __future__ import annotations

import inspect
import io

import numpy as np
import pytest
import torch
from torch import Tensor

import frossl
from frossl.objectives import (
    OBJECTIVES,
    CorInfoMaxLoss,
    MoCoLoss,
    Objective,
    TiCoLoss,
    corinfomax_loss,
    frossl_loss,
    ivne_loss,
    log_det_divergence,
    petz_renyi_divergence,
    renyi_variance,
    von_neumann_divergence,
)
from frossl.objectives.spectra import nuclear_norm
from tests.contract.cases import CASES, Case
from tests.reference import objectives as reference
from tests.support.losses import gradient, views

STATEFUL = [name for name, loss in OBJECTIVES.items() if loss.state]
INPUTS = {"lejepa": {"slices": 8}, "visreg": {"slices": 8}, "moco": {"queue_size": 10}}


def module(name: str) -> Objective:
    return OBJECTIVES[name](**INPUTS.get(name, {}))


def inputs(name: str) -> dict[str, torch.Generator]:
    takes = inspect.signature(OBJECTIVES[name].function).parameters
    return {"rng": torch.Generator().manual_seed(1)} if "rng" in takes else {}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_module_is_its_function_with_the_options_stored(name):
    loss = module(name)
    assert name == OBJECTIVES[name].function.__name__.removesuffix("_loss")
    z = views(3, 6, 4)
    running = loss.running(4)
    assert torch.equal(
        loss(z, **inputs(name)).total,
        OBJECTIVES[name].function(z, **loss.options, **running, **inputs(name)).total,
    )
    assert all(f"{option}=" in repr(loss) for option in loss.options)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_preset_is_made_of_options_of_the_function(name):
    assert "default" in OBJECTIVES[name].presets
    for preset in OBJECTIVES[name].presets:
        for V in (2, 4):
            loss = OBJECTIVES[name].preset(preset, views=V)
            given = OBJECTIVES[name].presets[preset](V)
            assert given.items() <= loss.options.items()
    with pytest.raises(frossl.FrosslError, match="is called 'defualt'; did you mean default"):
        OBJECTIVES[name].preset("defualt")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_docstring_has_equation_departures_and_cost(name):
    text = inspect.getdoc(OBJECTIVES[name].function)
    for word in ("L = ", "Departures:", "Cost:", "V"):
        assert word in text


def test_every_objective_has_the_name_it_is_imported_by():
    for loss in OBJECTIVES.values():
        for public in (loss.__name__, loss.function.__name__):
            assert public in frossl.__all__, "run: python docs/generate.py"
            assert getattr(frossl, public) is getattr(frossl.objectives, public)


@pytest.mark.parametrize("name", STATEFUL)
class TestRunningState:
    def test_it_moves_in_training_only(self, name):
        loss, z = module(name).eval(), views(3, 6, 4)
        loss(z)
        assert not loss.state_dict()
        loss.train()
        with torch.no_grad():
            loss(z)
        kept = {key: value.clone() for key, value in loss.state_dict().items()}
        assert set(kept) == set(loss.state)
        loss.eval()(views(3, 6, 4, seed=1))
        loss.train().terms(views(3, 6, 4, seed=1))
        for key, value in loss.state_dict().items():
            assert torch.equal(value, kept[key])
            assert not value.requires_grad

    def test_it_survives_a_file_and_a_new_module_goes_on_as_the_old_one(self, name):
        loss = module(name)
        for seed in range(3):
            loss(views(3, 6, 4, seed=seed))
        file = io.BytesIO()
        torch.save(loss.state_dict(), file)
        file.seek(0)
        other = torch.nn.Sequential(module(name))
        other.load_state_dict({f"0.{k}": v for k, v in torch.load(file, weights_only=True).items()})
        z = views(3, 6, 4, seed=9)
        first, second = loss(z), other(z)
        assert torch.equal(first.total, second.total)
        for key, value in loss.state_dict().items():
            assert torch.equal(value, other.state_dict()[f"0.{key}"])

    def test_a_backward_after_it_moved_gives_the_gradient_from_before(self, name):
        loss, z = module(name), views(3, 6, 4)
        loss(views(3, 6, 4, seed=1))
        _, expected = gradient(loss.terms, z)
        _, found = gradient(loss, z)
        assert torch.equal(found, expected)

    def test_it_matters(self, name):
        z = views(3, 6, 4)
        loss = module(name)
        before = loss(views(3, 6, 4, seed=5)).total
        fresh = module(name)(z).total
        assert before.isfinite()
        assert not torch.equal(loss(z).total, fresh)

    def test_it_follows_the_module_to_another_precision(self, name):
        loss, z = module(name), views(3, 6, 4, dtype=torch.float32)
        loss(views(3, 6, 4, dtype=torch.float32, seed=1))
        before = loss.terms(z).total.item()
        for dtype, rel in ((torch.float64, 1e-5), (torch.float16, 2e-2)):
            loss.to(dtype)
            floating = [x for x in loss.state_dict().values() if x.is_floating_point()]
            assert all(x.dtype == dtype for x in floating)
            assert loss.terms(z).total.item() == pytest.approx(before, rel=rel, abs=rel)

    def test_state_of_another_shape_is_refused(self, name):
        loss = module(name)
        loss(views(3, 6, 4))
        with pytest.raises(ValueError, match="shape"):
            loss(views(3, 6, 5))


def test_the_queue_is_first_in_first_out():
    loss = MoCoLoss(queue_size=5, symmetric=False)
    keys = []
    for seed in range(4):
        z = views(2, 2, 3, seed=seed)
        loss(z)
        keys.append(torch.nn.functional.normalize(z[1], dim=1))
    newest = torch.cat(keys)[-5:].float()
    held = {tuple(row) for row in loss.queue.tolist()}
    for row in newest:
        assert any(torch.allclose(row, torch.tensor(other), atol=1e-6) for other in held)
    assert loss.oldest.item() == 8 % 5


def test_a_queue_of_another_length_can_be_loaded():
    loss, other = MoCoLoss(queue_size=5), MoCoLoss(queue_size=9)
    other(views(2, 6, 4))
    loss.load_state_dict(other.state_dict())
    for seed in range(3):
        loss(views(2, 6, 4, seed=seed))
    assert loss.queue.shape == (9, 4)


def test_a_queue_or_target_of_another_shape_is_refused():
    z = views(2, 6, 4)
    with pytest.raises(ValueError, match=r"queue has shape \(7, 5\)"):
        frossl.moco_loss(z, queue=torch.randn(7, 5))
    with pytest.raises(ValueError, match=r"target has shape \(2, 6, 5\)"):
        frossl.byol_loss(z, target=torch.randn(2, 6, 5))
    for name in ("tico", "matrixssl", "iso"):
        with pytest.raises(ValueError, match=r"target has shape \(1, 6, 4\)"):
            OBJECTIVES[name].function(z, target=z[:1])
    with pytest.raises(ValueError, match=r"slices have shape \(3, 5\)"):
        frossl.lejepa_loss(z, slices=torch.randn(3, 5))


def test_with_multi_crop_every_view_predicts_the_targets_of_the_global_ones():
    z, target = views(4, 6, 5), views(2, 6, 5, seed=3)
    cosines = [
        torch.nn.functional.cosine_similarity(z[v], target[r], dim=1).mean()
        for r in range(2)
        for v in range(4)
        if v != r
    ]
    mean = torch.stack(cosines).mean()
    torch.testing.assert_close(frossl.simsiam_loss(z, target=target).total, -mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(frossl.byol_loss(z, target=target).total, 4 - 4 * mean, rtol=1e-12, atol=0)


def test_the_running_covariance_of_tico_and_corinfomax_is_an_average_of_batches():
    tico, info = TiCoLoss(momentum=0.5), CorInfoMaxLoss(momentum=0.5)
    batches = [views(2, 50, 3, seed=seed) for seed in range(2)]
    for z in batches:
        tico(z)
        info(z)
    rows = [torch.nn.functional.normalize(z[0], dim=1) for z in batches]
    expected = 0.25 * rows[0].T @ rows[0] / 50 + 0.5 * rows[1].T @ rows[1] / 50
    torch.testing.assert_close(tico.covariance, expected, rtol=1e-12, atol=0)
    mean = 0.25 * rows[0].mean(0) + 0.5 * rows[1].mean(0)
    torch.testing.assert_close(info.mean[0], mean, rtol=1e-12, atol=0)


# compilation


def compiled_agrees(case: Case, backend: str) -> None:
    torch._dynamo.reset()
    z = views(3, 6, 4)

    function, arguments = OBJECTIVES[case.name].function, case.arguments(z)

    def total(x: Tensor) -> Tensor:
        return function(x, **arguments).total

    eager, eager_grad = gradient_of(total, z)
    fast, fast_grad = gradient_of(torch.compile(total, backend=backend, fullgraph=True), z)
    torch.testing.assert_close(fast, eager, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(fast_grad, eager_grad, rtol=1e-6, atol=1e-9)


def gradient_of(function, z: Tensor) -> tuple[Tensor, Tensor]:
    z = z.clone().requires_grad_()
    total = function(z)
    (grad,) = torch.autograd.grad(total, z)
    return total, grad


FIRST = list({case.name: case for case in reversed(CASES)}.values())


@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_compiles_to_one_graph(case: Case):
    compiled_agrees(case, "aot_eager")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_modules_compile_to_one_graph_state_and_all(name):
    torch._dynamo.reset()
    eager = module(name)
    eager(views(2, 6, 4))  # state there is made, so that the graph only moves it
    fast = module(name)
    fast(views(2, 6, 4))
    fast.load_state_dict(eager.state_dict())
    draws = "rng" in inspect.signature(OBJECTIVES[name].function).parameters
    compiled = torch.compile(lambda x: fast(x).total, backend="aot_eager", fullgraph=True)
    for seed in range(2):
        z = views(2, 6, 4, seed=seed)
        torch.manual_seed(seed)
        expected = eager(z).total
        torch.manual_seed(seed)
        found = compiled(z)
        assert found.isfinite() if draws else torch.allclose(found, expected, rtol=1e-9)
    for key, value in eager.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[key], value, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_compiles_to_one_graph_with_inductor(case: Case):
    compiled_agrees(case, "inductor")


# spectra


def matrices(seed: int, D: int = 4) -> Tensor:
    x = torch.randn(2, 3 * D, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x.mT @ x / (3 * D)


DIVERGENCES = {
    "log-det": (log_det_divergence, reference.log_det_divergence),
    "von Neumann": (von_neumann_divergence, reference.von_neumann_divergence),
    **{
        f"Petz–Rényi {a}": (
            lambda A, B, a=a: petz_renyi_divergence(A, B, a),
            lambda A, B, a=a: reference.petz_renyi_divergence(A, B, a),
        )
        for a in (0.5, 2, 3)
    },
}


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_relative_entropies_of_any_b_equal_another_route_and_differentiate(kind):
    ours, by_hand = DIVERGENCES[kind]
    A, B = matrices(0), matrices(1)
    found = ours(A, B)
    for n in range(2):
        assert found[n].item() == pytest.approx(by_hand(A[n].numpy(), B[n].numpy()), rel=1e-9)
    symmetric = (lambda x: (x + x.mT) / 2) if kind != "log-det" else (lambda x: x @ x.mT)
    torch.autograd.gradcheck(
        lambda a, b: ours(symmetric(a), symmetric(b)), (A.requires_grad_(), B.requires_grad_()), atol=1e-6
    )


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_gradients_of_relative_entropies_are_right_where_eigenvalues_repeat(kind):
    ours, _ = DIVERGENCES[kind]
    A = (2 * torch.eye(3, dtype=torch.float64)).requires_grad_()
    B = torch.eye(3, dtype=torch.float64)
    torch.autograd.gradcheck(lambda a: ours((a + a.mT) / 2, B), (A,), atol=1e-6)


def test_variance_terms_are_relative_entropies_to_the_identity_up_to_constants():
    z = torch.nn.functional.normalize(views(2, 30, 5), dim=2)
    C = z.mT @ z / 30
    identity = torch.eye(5, dtype=torch.float64).expand(2, 5, 5)
    rows = {"normalize": "rows", "invariance_weight": 0.0}
    petz = petz_renyi_divergence(C, identity, 2).sum()
    torch.testing.assert_close(frossl_loss(z, **rows).total, petz, rtol=1e-10, atol=0)
    neumann = von_neumann_divergence(C, identity).mean()
    torch.testing.assert_close(ivne_loss(z, invariance_weight=0.0).total, neumann, rtol=1e-9, atol=0)
    terms = corinfomax_loss(z, invariance_weight=0.0, momentum=0.0, eps=1e-12)
    R = terms.state["covariance"]
    trace = R.diagonal(dim1=1, dim2=2).sum(1)
    log_det = (log_det_divergence(R, identity) - trace + 5).mean()
    torch.testing.assert_close(terms.total, 2 / 5 * log_det, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["ivne", "mmcr", "empssl", "corinfomax"])
def test_gradients_through_spectra_are_right_where_eigenvalues_repeat(name):
    z = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1) + 0.0
    by_hand = getattr(reference, name)
    extra = {"eps": 0.01} if name == "corinfomax" else {}
    options = {"eps": 0.01} if name == "corinfomax" else {}
    _, grad = gradient(lambda x: OBJECTIVES[name].function(x, **options), z)
    for seed in range(3):
        direction = np.random.default_rng(seed).normal(size=z.shape)
        slope = reference.difference_along(
            lambda y: by_hand(y, z.numpy(), **extra), z.numpy(), direction, 1e-4
        )
        assert (grad.numpy() * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 1, 2, 3])
def test_entropies_do_not_depend_on_scale(alpha):
    z = views(2, 12, 5, dtype=torch.float32)
    for scale in (1e-6, 1e-3, 1e4):
        torch.testing.assert_close(
            renyi_variance(scale * z, alpha), renyi_variance(z, alpha), rtol=1e-4, atol=1e-5
        )


def test_a_matrix_that_is_not_positive_definite_has_no_log_determinant():
    good, bad = torch.eye(3), -torch.eye(3)
    found = log_det_divergence(torch.stack([good, bad]), torch.stack([good, good]))
    assert found.isnan().tolist() == [False, True]


def test_whitening_does_not_depend_on_the_scale_of_columns():
    z = views(2, 40, 4, dtype=torch.float32)
    scaled = z * torch.tensor([1e-3, 1.0, 1e3, 1.0])
    wanted = frossl.wmse_loss(z).total
    torch.testing.assert_close(frossl.wmse_loss(scaled).total, wanted, rtol=1e-3, atol=0)


def test_the_nuclear_norm_ignores_directions_without_length():
    z = torch.zeros(5, 4, dtype=torch.float64)
    z[0, 0] = 3.0
    z.requires_grad_()
    nuclear_norm(z).backward()
    assert torch.equal(z.grad, torch.nn.functional.pad(torch.ones(1, 1, dtype=torch.float64), (0, 3, 0, 4)))
