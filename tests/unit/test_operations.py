"""The table of operations: each is off unless named, has draws of its own, and leaves the others alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

from frossl._api.catalog import list_names
from frossl.augment import VIEW_SETS, Augment, ViewSpec, fused, make_views, plan, view_set
from frossl.augment.operations import OPERATIONS, Operation
from frossl.augment.plan import CROP_DRAWS
from frossl.augment.random import uniforms
from frossl.config import Share
from frossl.types import Batch, Clock

CLOCK = Clock(step=0, total=10, epoch=2, seed=5)
IDS = torch.tensor([3, 99, 4, 17, 0, 5, 6, 1 << 40])
EVERYTHING = ViewSpec(
    size=20, count=3, flip=0.5, jitter=0.8, hue=0.4, gray=0.3, blur=0.5, sigma=(0.3, 2.5), solarize=0.4
)


def images(channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(channels)
    return torch.randint(0, 256, (len(IDS), channels, 32, 28), dtype=torch.uint8, generator=generator)


def views(spec: ViewSpec, kernel: str = "torch", channels: int = 3) -> Tensor:
    augment = Augment((spec,), mean=(0.5,) * channels, std=(0.25,) * channels, kernel=kernel)
    return augment(Batch(images(channels), IDS), CLOCK)[0]


def planned(spec: ViewSpec):
    return plan(spec, IDS, torch.arange(spec.count), CLOCK, height=32, width=28)


def test_every_operation_is_a_field_that_is_off_by_default():
    assert list(OPERATIONS) == [operation.name for operation in OPERATIONS.values()]
    assert {name: getattr(ViewSpec(), name) for name in OPERATIONS} == dict.fromkeys(OPERATIONS, 0.0)
    assert set(OPERATIONS) <= {field.name for field in fields(ViewSpec) if field.type == "Share"}


@pytest.mark.parametrize("name", VIEW_SETS)
def test_the_list_of_view_sets_names_the_operations_of_each(name):
    described = list_names("views")["views"][name]
    for operation in OPERATIONS.values():
        assert (operation.name in described) == any(map(operation.active, VIEW_SETS[name]))


def test_no_two_operations_share_a_random_number():
    draws = [CROP_DRAWS, *(operation.draws for operation in OPERATIONS.values())]
    assert all(len(one) > 0 and not set(one) & set(other) for one, other in combinations(draws, 2))


def test_the_compiled_operations_are_those_that_the_loops_take():
    assert tuple(name for name, operation in OPERATIONS.items() if operation.compiled) == fused.COMPILED


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_an_operation_that_is_off_leaves_every_view_unchanged(name, channels, monkeypatch):
    """Also if its function is called all the same, with the parameters for a probability of 0."""
    operation, spec = OPERATIONS[name], replace(EVERYTHING, **{name: 0.0})
    floats = torch.rand(24, channels, 20, 20)
    u = uniforms(seed=1, epoch=0, ids=torch.arange(24), views=torch.arange(1), count=operation.draws.stop)
    assert torch.equal(operation.apply(floats, operation.parameters(spec, u[0]), spec), floats)
    skipped = views(spec, channels=channels)
    monkeypatch.setattr(type(operation), "active", lambda self, spec: True)
    assert torch.equal(views(spec, channels=channels), skipped)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_an_operation_changes_only_the_views_it_is_drawn_for_and_no_other_draw(name, kernel):
    kernel = kernel if OPERATIONS[name].compiled else "torch"
    without, spec = (replace(EVERYTHING, **{name: share}) for share in (0.0, 0.4))
    before, after = planned(without), planned(spec)
    assert torch.equal(before.box, after.box)
    for other in before.parameters.keys() - {name}:
        assert all(map(torch.equal, before.parameters[other], after.parameters[other]))
    first = OPERATIONS[name].draws.start
    u = uniforms(seed=5, epoch=2, ids=IDS, views=torch.arange(3), count=first + 1)
    chosen = u[:, :, first] < 0.4
    same = (views(without, kernel) == views(spec, kernel)).flatten(2).all(2)
    assert 0 < chosen.sum() < chosen.numel()
    assert same[~chosen].all()
    assert not same[chosen].all()


class Stripe(Operation):
    """An invented operation: one row of a view, at a random height, becomes black."""

    name, draws = "stripe", range(200, 202)

    def draw(self, spec, chosen, u):
        return chosen, (u[:, 0] * spec.size).long()

    def apply(self, views, parameters, spec):
        chosen, row = parameters
        rows = torch.arange(spec.size, device=views.device)
        return torch.where((chosen[:, None] & (rows == row[:, None]))[:, None, :, None], 0.0, views)


@dataclass(frozen=True)
class StripedSpec(ViewSpec):
    stripe: Share = 0.0


@pytest.fixture
def with_stripes(monkeypatch):
    """Register the operation, as its field and its entry in the table would."""
    monkeypatch.setattr(ViewSpec, "stripe", 0.0, raising=False)
    monkeypatch.setitem(OPERATIONS, "stripe", Stripe())


SPECS = [EVERYTHING, ViewSpec(size=20, count=2), *view_set("asymmetric", size=24, views=4)]


@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_a_new_operation_changes_no_view_without_it(kernel, monkeypatch):
    before = [(planned(spec), views(spec, kernel)) for spec in SPECS]
    monkeypatch.setattr(ViewSpec, "stripe", 0.0, raising=False)
    monkeypatch.setitem(OPERATIONS, "stripe", Stripe())
    for (chosen, made), spec in zip(before, SPECS, strict=True):
        again = planned(spec)
        assert set(again.parameters) == set(chosen.parameters)
        assert all(
            torch.equal(a, b)
            for name, parts in chosen.parameters.items()
            for a, b in zip(parts, again.parameters[name], strict=True)
        )
        assert torch.equal(made, views(spec, kernel))


def test_a_new_operation_is_applied_with_its_own_draw_and_after_the_others(with_stripes):
    common = {field.name: getattr(EVERYTHING, field.name) for field in fields(EVERYTHING)}
    spec = StripedSpec(**common, stripe=0.6)
    chosen, made = planned(spec), make_views(Batch(images(), IDS), spec, planned(spec)).flatten(0, 1)
    plain = planned(EVERYTHING)
    assert torch.equal(chosen.box, plain.box)
    for name, parts in plain.parameters.items():
        assert all(map(torch.equal, parts, chosen.parameters[name]))
    expected = make_views(Batch(images(), IDS), EVERYTHING, plain).flatten(0, 1)
    u = uniforms(seed=5, epoch=2, ids=IDS, views=torch.arange(3), count=202).flatten(0, 1)
    striped = 0
    for p in range(len(expected)):
        if u[p, 200] < 0.6:
            expected[p, :, int(u[p, 201] * 20)] = 0
            striped += 1
    assert 0 < striped < len(expected)
    assert torch.equal(made, expected)


def test_without_a_compiled_form_the_views_of_that_kind_are_made_by_torch(with_stripes, monkeypatch):
    kinds = []
    loops = fused.fused_views

    def counted(images, spec, chosen, **options):
        kinds.append(spec)
        return loops(images, spec, chosen, **options)

    monkeypatch.setattr(fused, "fused_views", counted)
    striped = StripedSpec(size=20, flip=0.5, stripe=1.0)
    assert torch.equal(views(striped, "numba"), views(striped, "torch"))
    assert kinds == []
    off = replace(striped, stripe=0.0)
    augment = Augment((EVERYTHING, striped, off), mean=(0.5,) * 3, std=(0.25,) * 3, kernel="numba")
    (mixed,) = augment(Batch(images(), IDS), CLOCK)
    assert kinds == [EVERYTHING, off]
    assert torch.equal(mixed[:3], views(EVERYTHING, "numba"))
    assert (mixed[3] == -2).all((1, 3)).any(1).all()  # black, standardized
