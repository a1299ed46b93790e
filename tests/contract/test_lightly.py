"""Lightly 1.6's losses: equal where they are right, and what is wrong where they are not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import frossl.compat  # noqa: F401  before Lightly, which imports torchvision
from frossl import objectives
from tests.support.losses import descend, gradient, near_collapse, views

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightly import loss as lightly
    from lightly.loss.visreg_loss import visreg_center_loss, visreg_scale_loss, visreg_shape_loss


def agree(ours: Any, theirs: Any, z: Tensor, *, rel: float = 1e-9) -> None:
    """The same value, and the same gradient."""
    terms, grad = gradient(ours, z)
    x = z.clone().requires_grad_()
    total = theirs(x).reshape(())
    (other,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(terms.total, total.detach(), rtol=rel, atol=1e-12)
    torch.testing.assert_close(grad, other, rtol=100 * rel, atol=rel * other.abs().max().item())


@pytest.mark.parametrize("V", [2, 4])
@pytest.mark.parametrize("shape", [(12, 5), (5, 12)])
def test_frossl_is_the_released_preset(V, shape):
    z = views(V, *shape)
    agree(objectives.FroSSLLoss.preset("released", views=V), lambda x: lightly.FroSSLLoss()(list(x)), z)


def test_vicreg():
    agree(objectives.vicreg_loss, lambda x: lightly.VICRegLoss()(*x), views(2, 12, 5))


def test_barlow_twins():
    theirs = lightly.BarlowTwinsLoss(lambda_param=0.0051)
    agree(objectives.barlow_loss, lambda x: theirs(*x), views(2, 12, 5))


def test_simclr():
    theirs = lightly.NTXentLoss(temperature=0.5)
    agree(
        lambda x: objectives.simclr_loss(x, temperature=0.5), lambda x: theirs(*x), views(2, 12, 5), rel=1e-6
    )


@pytest.mark.parametrize("V", [2, 5])
def test_swav(V):
    z = 0.2 * views(V, 12, 5)
    agree(objectives.swav_loss, lambda x: lightly.SwaVLoss()(list(x[:2]), list(x[2:])), z)


@pytest.mark.parametrize("V", [2, 5])
def test_dino_and_its_center(V):
    z, teacher = views(V, 12, 5), views(2, 12, 5, seed=3)
    theirs = lightly.DINOLoss(output_dim=5).double()
    ours = objectives.DINOLoss()
    for step in range(3):  # the center moves
        batch = z + 0.1 * step
        agree(
            lambda x: ours.terms(x, target=teacher),
            lambda x: theirs(list(teacher), list(x)),
            batch,
            rel=1e-7,  # their temperature is a float32 tensor
        )
        ours(batch, target=teacher)
        torch.testing.assert_close(ours.center, theirs.center.flatten(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("V", [2, 3])
def test_wmse(V):
    theirs = lightly.WMSELoss(embedding_dim=4, w_size=16, num_samples=V).double()
    agree(
        lambda x: objectives.wmse_loss(x, sub_batch=16),
        lambda x: theirs(x.flatten(0, 1)),
        views(V, 16, 4),
        rel=1e-6,
    )


def test_lejepa_with_local_views():
    z = views(5, 12, 4)
    theirs = lightly.LeJEPALoss(lambda_param=0.05).double()
    theirs.sigreg.num_vectors = 8
    ours = objectives.LeJEPALoss.preset("multi-crop")
    ours.options["slices"] = 8

    def with_seed(function: Any) -> Any:  # both draw D × K normal numbers and scale the columns
        def seeded(x: Tensor) -> Any:
            torch.manual_seed(0)
            return function(x)

        return seeded

    agree(
        with_seed(ours),
        with_seed(lambda x: theirs(global_proj=x[:2], local_proj=x[2:])),
        z,
        rel=1e-6,  # their knots and weights are float32
    )


def test_visreg_regularizer():
    z = views(4, 12, 5)

    def ours(x: Tensor) -> Any:
        torch.manual_seed(0)
        return objectives.visreg_loss(
            x, invariance_weight=0.0, variance_weight=1.0, slices=16, eps=0.0, shape_eps=1e-4
        )

    def theirs(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return visreg_scale_loss(x) + visreg_shape_loss(x, num_slices=16) + visreg_center_loss(x)

    agree(ours, theirs, z, rel=1e-5)  # their quantiles are float32


# what is wrong there


def test_their_empssl_has_the_opposite_sign_of_the_coding_rate_and_collapses():
    z = views(3, 12, 5)
    unit = torch.nn.functional.normalize(z, dim=-1)
    terms = objectives.empssl_loss(z)
    theirs = lightly.EMPSSLLoss()(list(unit))
    torch.testing.assert_close(
        theirs, terms.parts["invariance"] - terms.parts["variance"], rtol=1e-6, atol=1e-8
    )
    loss = lightly.EMPSSLLoss()
    _, _, rank = descend(
        lambda x: loss(list(torch.nn.functional.normalize(x, dim=-1))), near_collapse(2, 64, 16)
    )
    assert rank < 4


def test_their_mmcr_leaves_unit_rows_to_the_caller_and_has_no_minimum_without():
    z = views(2, 12, 5)
    unit = torch.nn.functional.normalize(z, dim=-1)
    theirs = lightly.MMCRLoss(lmda=0.0)
    # (images, views, D), split into online and momentum
    right = theirs(unit[:1].transpose(0, 1), unit[1:].transpose(0, 1))
    torch.testing.assert_close(objectives.mmcr_loss(z).total, right, rtol=1e-9, atol=0)
    raw, larger = (theirs(s * z[:1].transpose(0, 1), s * z[1:].transpose(0, 1)) for s in (1, 10))
    torch.testing.assert_close(larger, 10 * raw, rtol=1e-9, atol=0)
    torch.testing.assert_close(
        objectives.mmcr_loss(10 * z).total, objectives.mmcr_loss(z).total, rtol=1e-9, atol=0
    )


def test_their_tico_is_ours_detached_plus_one_and_forgets_its_state():
    theirs, ours = lightly.TiCoLoss(), objectives.TiCoLoss.preset("lightly")
    for seed in range(3):
        z = views(2, 12, 5, seed=seed)
        ahead = ours.terms(z).total + 1
        torch.testing.assert_close(theirs(*z), ahead, rtol=1e-9, atol=0)
        ours(z)
    assert not theirs.state_dict()  # lost with the process
    assert set(ours.state_dict()) == {"covariance"}
    held = theirs.C.clone()
    with torch.no_grad():
        theirs.eval()(*views(2, 12, 5, seed=9))
    assert not torch.equal(theirs.C, held)  # moved by an evaluation
    kept = ours.covariance.clone()
    ours.eval()(views(2, 12, 5, seed=9))
    assert torch.equal(ours.covariance, kept)


def test_their_frossl_is_nan_for_a_batch_of_zeros_and_their_swav_for_half_scores():
    assert lightly.FroSSLLoss()(list(torch.zeros(2, 6, 4))).isnan()
    assert objectives.FroSSLLoss.preset("released")(torch.zeros(2, 6, 4)).total.isfinite()
    scores = torch.tensor([[[5.0, -5.0], [-5.0, 5.0]]] * 2)
    assert objectives.swav_loss(scores.half()).total.isfinite()
    assert lightly.SwaVLoss()(list(scores.half()), []).isnan()
