"""Every method on the step contract: trains, uses all parameters, resumes, takes views or refuses them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frossl import api
from frossl.config import Config, Data, Network, Objective, Optim, Train, ViewSpec
from frossl.data import open_dataset
from frossl.engine import build, settle
from frossl.engine.step import train_step
from frossl.errors import InputError
from frossl.methods import METHODS
from frossl.networks import Prototypes, follow, teacher_of
from frossl.runs import RunFolder
from frossl.types import Clock

OPTIONS = {
    "moco": {"queue_size": 64},
    "swav": {"prototypes": 20, "queue_size": 48, "queue_from": 0.0},
    "dino": {"outputs": 20},
    "byol": {"predictor_hidden": 16},
    "matrixssl": {"predictor_hidden": 16},
    "simsiam": {"predictor_hidden": 16},
    "lejepa": {"slices": 16},
    "visreg": {"slices": 16},
}


def config(name: str, views: tuple[ViewSpec, ...] = (ViewSpec(size=16, count=2),)) -> Config:
    return Config(
        data=Data("cifar10-mini"),
        network=Network(
            "resnet18", width=0.125, stages=2, projector_hidden=32, projector_out=16, projector_layers=2
        ),
        objective=Objective(name, OPTIONS.get(name, {})),
        optim=Optim(base_lr=0.01),
        train=Train(epochs=1, batch_size=24, log_every=1, checkpoint_every=2),
        views=views,
    )


@pytest.fixture(scope="module")
def data():
    return open_dataset("cifar10-mini")


def state_of(given: Config, data):
    return build(settle(given, data), data, RunFolder(Path("unused")))


def step(state, number: int):
    loader = state.loader
    batch = loader.source.read(loader.ids(number))
    return train_step(state.to_device(batch), state, loader.clock(number))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("V", [2, 4])
def test_every_method_trains_and_every_trainable_parameter_moves(name, V, data):
    state = state_of(config(name, (ViewSpec(size=16, count=V),)), data)
    before = {key: p.detach().clone() for key, p in state.method.named_parameters() if p.requires_grad}
    for number in range(3):
        assert step(state, number).total.isfinite()
    still = [
        key for key, p in state.method.named_parameters() if key in before and torch.equal(p, before[key])
    ]
    assert not still


@pytest.mark.parametrize("name", METHODS)
def test_a_state_dict_round_trip_gives_the_identical_next_step(name, data):
    one, other = (state_of(config(name), data) for _ in range(2))
    for number in range(3):
        step(one, number)
    other.method.load_state_dict(one.method.state_dict())
    other.optimizer.load_state_dict(copy.deepcopy(one.optimizer.state_dict()))
    first, second = step(one, 3), step(other, 3)
    assert torch.equal(first.total, second.total)
    for key, value in one.method.state_dict().items():
        assert torch.equal(value, other.method.state_dict()[key]), key


@pytest.mark.parametrize("name", METHODS)
def test_two_sizes_of_views_work_or_are_refused(name, data):
    crops = (ViewSpec(size=16, count=2), ViewSpec(size=12, count=3, scale=(0.05, 0.3)))
    if METHODS[name].multi_crop:
        state = state_of(config(name, crops), data)
        for number in range(2):
            assert step(state, number).total.isfinite()
    else:
        with pytest.raises(InputError, match=f"{name} takes views of one size"):
            state_of(config(name, crops), data)


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_is_finite_under_bf16_autocast(name, data):
    given = config(name)
    state = state_of(replace(given, train=replace(given.train, precision="bf16-mixed")), data)
    for number in range(2):
        assert step(state, number).total.isfinite()


@pytest.mark.parametrize("name", METHODS)
def test_a_run_by_name_ends_with_an_encoder(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    run = api.pretrain("cifar10-mini", out=tmp_path / name, config=config(name), quiet=True)
    assert api.load_encoder(run.path)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).isfinite().all()


def test_a_teacher_follows_weights_and_batchnorm_statistics():
    student = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    teacher = teacher_of(student)
    assert not any(p.requires_grad for p in teacher.parameters())
    old = {key: value.clone() for key, value in teacher.state_dict().items()}
    with torch.no_grad():
        for p in student.parameters():
            p.add_(1.0)
    student(torch.randn(8, 3) + 5)  # moves its statistics
    teacher.train()(torch.randn(8, 3) - 5)  # does not move the teacher's
    follow(teacher, student, momentum=0.9)
    for key, value in teacher.state_dict().items():
        new = student.state_dict()[key]
        expected = 0.9 * old[key] + 0.1 * new if value.is_floating_point() else new
        torch.testing.assert_close(value, expected)


def test_swav_queues_the_newest_embeddings_of_the_global_views(data):
    state = state_of(config("swav"), data)
    for number in range(3):
        step(state, number)
    method = state.method
    assert method.queue.shape == (2, 48, 16)
    torch.testing.assert_close(method.queue.norm(dim=-1), torch.ones(2, 48))
    torch.testing.assert_close(method.prototypes.weight.norm(dim=1), torch.ones(20))


def test_prototypes_are_cosines():
    prototypes, x = Prototypes(4, 6), torch.randn(5, 4)
    expected = torch.stack([F.cosine_similarity(x, row[None], dim=1) for row in prototypes.weight], dim=1)
    torch.testing.assert_close(prototypes(x), expected)


def test_frozen_prototypes_stay_and_the_clock_says_how_long(data):
    given = config("swav")
    options = {**given.objective.options, "freeze": 0.9}
    state = state_of(replace(given, objective=Objective("swav", options)), data)
    before = state.method.prototypes.weight.detach().clone()
    step(state, 0)
    torch.testing.assert_close(state.method.prototypes.weight, before)


def test_random_numbers_of_a_step_depend_on_seed_and_step_only():
    def draw(step: int, seed: int) -> Tensor:
        return torch.rand(3, generator=Clock(step, 10, 0, seed).generator())

    assert torch.equal(draw(1, 2), draw(1, 2))
    assert not torch.equal(draw(1, 2), draw(2, 2))
    assert not torch.equal(draw(1, 2), draw(1, 3))
