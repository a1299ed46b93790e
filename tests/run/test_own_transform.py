"""Views by a function of the user's."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torchvision.transforms import v2

import frossl
from frossl.augment import OwnViews
from frossl.errors import InputError
from frossl.types import Batch, Clock

CLOCK = Clock(step=0, total=10, epoch=2, seed=5)

classic = v2.Compose(
    [
        v2.ToPILImage(),
        v2.RandomResizedCrop(20),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    ]
)


def several(image):
    """Two large views and three small ones, from three sources of random numbers."""
    small, large = image[:, :12, :12].float(), image.float()
    noise = [random.random(), np.random.rand(), float(torch.rand(()))]
    return [large + noise[0], small + noise[1], large + noise[2], small, small + 1]


@pytest.fixture
def batch() -> Batch:
    return Batch(torch.randint(0, 256, (6, 3, 24, 24), dtype=torch.uint8), torch.tensor([3, 9, 1, 0, 70, 5]))


@pytest.mark.parametrize("transform", [classic, several])
def test_views_are_a_function_of_seed_epoch_id_and_view(transform, batch):
    own = OwnViews(transform, views=3)
    whole = own(batch, CLOCK)
    some = torch.tensor([4, 2])
    part = own(Batch(batch.images[some], batch.ids[some]), Clock(step=7, total=99, epoch=2, seed=5))
    for a, b in zip(whole, part, strict=True):
        assert torch.equal(a[:, some], b)
    assert not torch.equal(whole[0], own(batch, Clock(step=0, total=10, epoch=3, seed=5))[0])
    assert not torch.equal(whole[0][0], whole[0][1])


def test_a_list_of_views_is_sorted_by_size(batch):
    assert [tuple(views.shape) for views in OwnViews(several)(batch, CLOCK)] == [
        (2, 6, 3, 24, 24),
        (3, 6, 3, 12, 12),
    ]


def test_the_callers_random_numbers_stay_as_they_were(batch):
    def draws() -> tuple:
        return random.random(), np.random.rand(), float(torch.rand(()))

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    expected = draws()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    OwnViews(several)(batch, CLOCK)
    assert draws() == expected


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (lambda image: image, "returned torch.uint8"),
        (lambda image: image.float()[:, :5], "views are squares"),
        (lambda image: [image.float(), 7], "returned int"),
        (lambda image: None, "returned NoneType"),
        (
            lambda image: image.float()[:, : 8 + image[0, 0, 0] % 9, : 8 + image[0, 0, 0] % 9],
            "the same shapes",
        ),
        (lambda image: [image.float()] * (2 + int(image[0, 0, 0]) % 2), "the same shapes"),
    ],
)
def test_what_is_no_view_is_refused(transform, words, batch):
    batch.images[:, 0, 0, 0] = torch.arange(6)
    with pytest.raises(InputError, match=words):
        OwnViews(transform)(batch, CLOCK)


def test_views_of_other_channels_are_refused_and_of_other_precision_taken(batch):
    with pytest.raises(InputError, match="3 channels to 1"):
        OwnViews(lambda image: image.float()[:1]).specs(batch)
    assert OwnViews(lambda image: image.double())(batch, CLOCK)[0].dtype == torch.float32


@pytest.mark.slow
def test_a_run_with_a_transform_goes_on_with_it_to_the_same_bits(tmp_path, monkeypatch):
    config = frossl.recipe("demo")
    settings = {"config": config, "epochs": 1, "batch_size": 500, "transform": classic, "quiet": True}
    frossl.pretrain("cifar10-mini", out=tmp_path / "whole", **settings)
    monkeypatch.setenv("FROSSL_MAX_STEPS", "4")
    run = frossl.pretrain("cifar10-mini", out=tmp_path / "parts", **settings)
    assert run.config.transform == "Compose"
    assert [(spec.size, spec.count) for spec in run.config.views] == [(20, 2)]
    assert (run.path / "views.png").is_file()
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    with pytest.raises(InputError, match="made by a function of yours"):
        frossl.resume(run.path, quiet=True)
    settings |= {"transform": None, "views": 2}
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    plain = frossl.pretrain("cifar10-mini", out=tmp_path / "plain", **settings)
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    with pytest.raises(InputError, match="leave the transform out"):
        frossl.resume(plain.path, transform=classic, quiet=True)
    frossl.resume(run.path, transform=classic, quiet=True)
    whole, parts = (load_file(tmp_path / name / "encoder.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
