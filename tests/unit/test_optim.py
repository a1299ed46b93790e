"""LARS and schedules against few-line computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from frossl.config import Optim
from frossl.optim import LARS, build_optimizer, cosine, set_lr, warmup_cosine, warmup_stable_decay


def lars_by_hand(p, gradients, *, lr, wd, trust=0.02, momentum=0.9, clip=True):
    velocity = np.zeros_like(p)
    for g in gradients:
        d = g
        if p.ndim > 1:
            local = 1.0 if np.linalg.norm(g) > 0 else 0.0
            if np.linalg.norm(p) > 0 and np.linalg.norm(g) > 0:
                local = trust * np.linalg.norm(p) / (np.linalg.norm(g) + wd * np.linalg.norm(p) + 1e-8)
                local = min(local / lr, 1.0) if clip else local
            d = (g + wd * p) * local
        velocity = momentum * velocity + d
        p = p - lr * velocity
    return p


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])  # the clip acts at the small end only
@pytest.mark.parametrize("start", ["random", "zero"])
def test_lars_equals_a_few_lines_of_numpy(clip, scale, start):
    random = np.random.default_rng(0)
    shapes = [(4, 3), (5,), (2, 3, 3, 3)]
    begin = [random.normal(size=s) * (start == "random") for s in shapes]
    gradients = [[scale * random.normal(size=s) for s in shapes] for _ in range(4)]
    parameters = [nn.Parameter(torch.tensor(p)) for p in begin]
    optimizer = LARS(parameters, lr=0.3, weight_decay=1e-2, clip=clip)
    for step in gradients:
        for p, g in zip(parameters, step, strict=True):
            p.grad = torch.tensor(g)
        optimizer.step()
    for i, p in enumerate(parameters):
        expected = lars_by_hand(begin[i], [step[i] for step in gradients], lr=0.3, wd=1e-2, clip=clip)
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("lars", LARS), ("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)],
)
def test_weight_decay_spares_vectors(name, kind):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    optimizer = build_optimizer(model, Optim(name, weight_decay=0.1), lr=0.5)
    assert isinstance(optimizer, kind)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert {n: decay[id(p)] for n, p in model.named_parameters()} == {
        "0.weight": 0.1, "0.bias": 0.0, "1.weight": 0.0, "1.bias": 0.0,
    }  # fmt: skip


def test_the_rate_rises_linearly_and_falls_along_a_cosine():
    rates = [warmup_cosine(step, total=100, warmup=10, peak=2.0, floor=0.2) for step in range(101)]
    np.testing.assert_allclose(rates[:10], 2.0 * np.arange(1, 11) / 10)
    done = (np.arange(10, 101) - 10) / 90
    np.testing.assert_allclose(rates[10:], 0.2 + 1.8 * np.cos(np.pi * done / 2) ** 2)
    assert warmup_cosine(0, total=1, warmup=0, peak=2.0) == 2.0


def test_the_rate_rises_stays_and_falls_in_a_line():
    rates = [
        warmup_stable_decay(step, total=100, warmup=10, decay=20, peak=2.0, floor=0.2) for step in range(101)
    ]
    np.testing.assert_allclose(rates[:10], 2.0 * np.arange(1, 11) / 10)
    np.testing.assert_allclose(rates[10:80], 2.0)
    np.testing.assert_allclose(rates[80:], np.linspace(2.0, 0.2, 21))
    assert warmup_stable_decay(0, total=1, warmup=0, decay=0, peak=2.0) == 2.0


def test_an_inertia_rises_along_half_a_cosine():
    values = [cosine(step, total=50, start=0.9, end=1.0) for step in range(60)]
    expected = 0.9 + 0.1 * np.sin(np.pi / 2 * np.minimum(np.arange(60) / 50, 1)) ** 2
    np.testing.assert_allclose(values, expected)


def test_rates_are_scaled_by_name_and_some_names_are_spared_from_decay():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = build_optimizer(
        model,
        Optim("sgd", weight_decay=0.1, momentum=0.0),
        lr=1.0,
        scales={"0.weight": 0.5, "0.bias": 0.5},
        spared={"1.weight"},
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    set_lr(optimizer, 0.2)
    optimizer.step()
    for name, p in model.named_parameters():
        decay = 0.1 if name == "0.weight" else 0.0
        rate = 0.1 if name.startswith("0") else 0.2
        torch.testing.assert_close(p.detach(), before[name] - rate * (1 + decay * before[name]))
