"""Every method on the step contract: trains, uses all parameters, resumes, takes views or refuses them."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import frossl
from frossl.augment import view_set
from frossl.config import Config, Data, Network, Objective, Optim, Train, ViewSpec
from frossl.data import open_dataset
from frossl.engine import build, settle
from frossl.engine.step import train_step
from frossl.errors import InputError
from frossl.methods import METHODS
from frossl.networks import Prototypes, ema_update, make_teacher
from frossl.objectives.swav import sinkhorn
from frossl.types import Clock
from tests.support.runs import SMALL_OPTIONS, USUAL

CLASSES = {name: (entry.networks, bool(entry.objective().running(4))) for name, entry in METHODS.items()}
ONE_PER_CLASS = [
    name for name, kind in CLASSES.items() if name == next(n for n in CLASSES if CLASSES[n] == kind)
]
"""A name for each class of networks, with an objective that keeps state and with one that keeps none.

What does not depend on these is tested for every objective in the other modules of this folder.
"""


def config(name: str, views: tuple[ViewSpec, ...] = (ViewSpec(size=16, count=2, **USUAL),)) -> Config:
    return Config(
        data=Data("cifar10-mini"),
        network=Network(
            "resnet18", width=0.125, stages=2, projector_hidden=32, projector_out=16, projector_layers=2
        ),
        objective=Objective(name, SMALL_OPTIONS.get(name, {})),
        optim=Optim(base_lr=0.01),
        train=Train(epochs=1, batch_size=24, log_every=1, checkpoint_every=2),
        views=views,
    )


@pytest.fixture(scope="module")
def data():
    return open_dataset("cifar10-mini")


def state_of(given: Config, data):
    return build(settle(given, data), data)


def step(state, number: int):
    loader = state.loader
    batch = loader.read(loader.ids(number))
    terms, _ = train_step(state.to_device(batch), state, loader.clock(number))
    return terms


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("V", [2, 4])
def test_every_method_trains_and_every_trainable_parameter_moves(name, V, data):
    state = state_of(config(name, (ViewSpec(size=16, count=V, **USUAL),)), data)
    before = {key: p.detach().clone() for key, p in state.method.named_parameters() if p.requires_grad}
    for number in range(3):
        assert step(state, number).total.isfinite()
    still = [
        key for key, p in state.method.named_parameters() if key in before and torch.equal(p, before[key])
    ]
    assert not still


@pytest.mark.parametrize("name", ONE_PER_CLASS)
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


@pytest.mark.parametrize("name", ONE_PER_CLASS)
def test_two_sizes_of_views_work_or_are_refused(name, data):
    crops = (ViewSpec(size=16, count=2, **USUAL), ViewSpec(size=12, count=3, scale=(0.05, 0.3), **USUAL))
    if METHODS[name].networks.multi_crop:
        state = state_of(config(name, crops), data)
        for number in range(2):
            assert step(state, number).total.isfinite()
    else:
        with pytest.raises(InputError, match=f"{name} takes views of one size"):
            state_of(config(name, crops), data)


@pytest.mark.parametrize("name", ONE_PER_CLASS)
def test_views_made_in_two_ways_are_of_one_size(name, data):
    state = state_of(config(name, view_set("asymmetric", size=16)), data)
    clock = state.loader.clock(0)
    views = state.augment(state.loader.read(state.loader.ids(0)), clock)
    assert [tuple(group.shape[:2]) for group in views] == [(2, 24)]
    targets = state.method.targets(views)
    assert "target" not in targets or len(targets["target"]) == 2
    assert step(state, 0).total.isfinite()


@pytest.mark.parametrize("name", ONE_PER_CLASS)
def test_the_loss_is_finite_under_bf16_autocast(name, data):
    given = config(name)
    state = state_of(replace(given, train=replace(given.train, precision="bf16-mixed")), data)
    for number in range(2):
        assert step(state, number).total.isfinite()


@pytest.mark.parametrize("name", ONE_PER_CLASS)
def test_a_run_by_name_ends_with_an_encoder(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    run = frossl.pretrain("cifar10-mini", out=tmp_path / name, config=config(name), quiet=True)
    assert frossl.load_encoder(run.path)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).isfinite().all()


@pytest.mark.parametrize("name", ONE_PER_CLASS)
def test_every_trainable_parameter_gets_a_gradient(name, data):
    state = state_of(config(name), data)
    for number in range(2):  # the last norm of a residual block is zero at first, and blocks what is before
        step(state, number)
    clock = state.loader.clock(2)
    views = state.augment(state.loader.read(state.loader.ids(2)), clock)
    tensors = {**state.method.targets(views), **state.method.project(views)}
    state.method.loss(tensors, clock).total.backward()
    without = [
        key
        for key, p in state.method.named_parameters()
        if p.requires_grad and (p.grad is None or not p.grad.any())
    ]
    assert not without
    assert not any(p.requires_grad for key, p in state.method.named_parameters() if "teacher" in key)


@pytest.mark.parametrize("name", ONE_PER_CLASS)
def test_views_forwarded_together_give_the_same_without_batchnorm(name, data):
    views = (ViewSpec(size=16, count=3, **USUAL), ViewSpec(size=8, count=2, **USUAL))
    given = config(name, views if METHODS[name].networks.multi_crop else views[:1])
    given = replace(given, network=replace(given.network, backbone="vit_tiny_patch16_224", stages=None))
    state = state_of(given, data)
    method = state.method.eval()  # no BatchNorm moves or normalizes by the batch
    made = state.augment(state.loader.read(state.loader.ids(0)), state.loader.clock(0))
    results = []
    for together in (False, True):
        state.method.together = together
        results.append({**method.targets(made), **method.project(made)})
    for key, value in results[0].items():
        torch.testing.assert_close(value, results[1][key], rtol=1e-4, atol=1e-4)


def test_batchnorm_sees_one_view_at_a_time_or_all_of_a_size(data):
    def statistics(together: bool) -> Tensor:
        given = config("frossl", (ViewSpec(size=16, count=2, **USUAL),))
        state = state_of(replace(given, train=replace(given.train, together=together)), data)
        views = state.augment(state.loader.read(state.loader.ids(0)), state.loader.clock(0))
        state.method.project(views)
        return state.method.backbone.bn1.num_batches_tracked

    assert statistics(together=False) == 2
    assert statistics(together=True) == 1


def test_a_teacher_follows_weights_and_batchnorm_statistics():
    student = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    teacher = make_teacher(student)
    assert not any(p.requires_grad for p in teacher.parameters())
    old = {key: value.clone() for key, value in teacher.state_dict().items()}
    with torch.no_grad():
        for p in student.parameters():
            p.add_(1.0)
    student(torch.randn(8, 3) + 5)  # moves its statistics
    teacher.train()(torch.randn(8, 3) - 5)  # does not move the teacher's
    ema_update(teacher, student, momentum=0.9)
    for key, value in teacher.state_dict().items():
        new = student.state_dict()[key]
        expected = 0.9 * old[key] + 0.1 * new if value.is_floating_point() else new
        torch.testing.assert_close(value, expected)


def test_the_teachers_inertia_rises_along_a_cosine(data):
    given = config("byol")
    options = {**given.objective.options, "ema": 0.9, "ema_end": 1.0}
    state = state_of(replace(given, objective=Objective("byol", options)), data)
    expected = {key: p.detach().clone() for key, p in state.method.teacher.named_parameters()}
    for number in range(3):
        step(state, number)
        inertia = 1 - (1 - 0.9) * (np.cos(np.pi * number / state.loader.total) + 1) / 2
        student = nn.Sequential(state.method.backbone, state.method.projector)
        for key, p in student.named_parameters():
            expected[key] = inertia * expected[key] + (1 - inertia) * p.detach()
    for key, p in state.method.teacher.named_parameters():
        torch.testing.assert_close(p, expected[key], rtol=1e-5, atol=1e-6)


def seen_by(method, name: str) -> list[Tensor]:
    """What a step gives the loss under that name, step by step."""
    seen, loss = [], method.loss

    def listening(gathered, clock):
        seen.append(gathered[name].detach().clone())
        return loss(gathered, clock)

    method.loss = listening
    return seen


def test_swav_queues_the_newest_embeddings_of_the_global_views(data):
    crops = (ViewSpec(size=16, count=2, **USUAL), ViewSpec(size=12, count=1, **USUAL))
    state = state_of(config("swav", crops), data)
    z = seen_by(state.method, "z")
    for number in range(3):
        step(state, number)
    newest_first = torch.cat([z[2][:2], z[1][:2], z[0][:2]], dim=1)[:, :48]
    expected = newest_first / newest_first.square().sum(-1, keepdim=True).sqrt()
    torch.testing.assert_close(state.method.queue, expected)
    torch.testing.assert_close(state.method.head.weight.norm(dim=1), torch.ones(20))


def test_mocos_queue_holds_the_newest_keys_first_in_first_out(data):
    state = state_of(config("moco"), data)
    keys = seen_by(state.method, "target")
    for number in range(4):
        step(state, number)
    rows = torch.cat([F.normalize(k[1], dim=1) for k in keys])  # one direction: keys of the second view
    queue = state.method.objective.queue
    assert len(rows) == 96
    for place in range(64):  # 96 keys went round a ring of 64
        row = rows[place + 64] if place < 32 else rows[place]
        torch.testing.assert_close(queue[place], row)


def test_sinkhorn_balances_as_a_few_lines_of_numpy_do():
    scores = torch.randn(12, 5, dtype=torch.float64).clamp(-1, 1)
    Q = np.exp(scores.numpy() / 0.05).T
    Q /= Q.sum()
    for _ in range(3):
        Q /= Q.sum(1, keepdims=True) * len(Q)
        Q /= Q.sum(0, keepdims=True) * Q.shape[1]
    np.testing.assert_allclose(sinkhorn(scores).numpy(), (Q * Q.shape[1]).T, rtol=1e-10)


def test_dinos_center_is_a_running_mean_of_the_teachers_logits(data):
    state = state_of(config("dino"), data)
    logits = seen_by(state.method, "target")
    center = np.zeros(20)
    for number in range(3):
        step(state, number)
        center = 0.9 * center + 0.1 * logits[-1].numpy().reshape(-1, 20).mean(0)
    np.testing.assert_allclose(state.method.objective.center.numpy(), center, rtol=1e-5, atol=1e-7)


def test_dinos_teacher_is_exported_and_its_temperature_warms_up(data):
    given = config("dino")
    options = {**given.objective.options, "temperature_warmup": 0.5, "target_temperature": 0.07}
    state = state_of(replace(given, objective=Objective("dino", options)), data)
    method, total = state.method, state.loader.total
    assert method.encoder is method.teacher[0]
    temperatures = [
        method.inputs({"target": torch.zeros(1)}, Clock(step, total, 0, 0))["target_temperature"]
        for step in (0, total // 4, total // 2, total - 1)
    ]
    np.testing.assert_allclose(temperatures, [0.04, 0.055, 0.07, 0.07], atol=1e-4)


def test_weight_normed_prototypes_ignore_the_length_of_their_rows():
    prototypes, x = Prototypes(4, 6, weight_norm=True), torch.randn(5, 4)
    before = prototypes(x)
    with torch.no_grad():
        prototypes.weight.mul_(torch.rand(6, 1) + 0.5)
    torch.testing.assert_close(prototypes(x), before)
    prototypes(x).sum().backward()
    torch.testing.assert_close((prototypes.weight.grad * prototypes.weight).sum(1), torch.zeros(6))


def test_prototypes_are_cosines():
    prototypes, x = Prototypes(4, 6), torch.randn(5, 4)
    expected = torch.stack([F.cosine_similarity(x, row[None], dim=1) for row in prototypes.weight], dim=1)
    torch.testing.assert_close(prototypes(x), expected)


def test_frozen_prototypes_stay_and_the_clock_says_how_long(data):
    given = config("swav")
    options = {**given.objective.options, "freeze": 0.9}
    state = state_of(replace(given, objective=Objective("swav", options)), data)
    before = state.method.head.weight.detach().clone()
    step(state, 0)
    torch.testing.assert_close(state.method.head.weight, before)


def test_random_numbers_of_a_step_depend_on_seed_and_step_only():
    def draw(step: int, seed: int) -> Tensor:
        return torch.rand(3, generator=Clock(step, 10, 0, seed).generator())

    assert torch.equal(draw(1, 2), draw(1, 2))
    assert not torch.equal(draw(1, 2), draw(2, 2))
    assert not torch.equal(draw(1, 2), draw(1, 3))
