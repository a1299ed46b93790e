"""Accuracy while a run trains: against numpy, and without a trace in what it looks at."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from frossl.data import ArraySource
from frossl.evaluation import EvalSplit, Labelled, OnlineKnn, OnlineProbe, knn_accuracy, online_labels
from frossl.evaluation.online import PROBE_LR

V, N, F, CLASSES = 2, 32, 6, 4


def steps(count: int, seed: int = 0):
    """Features that tell the class, at scales that differ by dimension; ids of a hundred images."""
    random = np.random.default_rng(seed)
    labels = np.arange(100) % CLASSES
    centers = random.normal(size=(CLASSES, F))
    for _ in range(count):
        ids = random.permutation(100)[:N]
        features = (centers[labels[ids]] + 0.5 * random.normal(size=(V, N, F))) * np.geomspace(0.01, 100, F)
        yield torch.from_numpy(ids), torch.tensor(features, dtype=torch.float32)


def test_the_probe_is_standardized_logistic_regression_by_sgd():
    labels = torch.arange(100) % CLASSES
    probe = OnlineProbe(F, labels)
    weight, bias = np.zeros((CLASSES, F)), np.zeros(CLASSES)
    speed = [np.zeros_like(weight), np.zeros_like(bias)]
    right = []
    for ids, features in steps(30):
        probe.step(ids, features)
        x = features.double().numpy().reshape(-1, F)
        y = np.tile(labels[ids].numpy(), V)
        x = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
        logits = x @ weight.T + bias
        right.append((logits.argmax(1) == y).mean())
        shares = np.exp(logits - logits.max(1, keepdims=True))
        wrong = (shares / shares.sum(1, keepdims=True) - np.eye(CLASSES)[y]) / len(y)
        for part, gradient in zip(speed, (wrong.T @ x, wrong.sum(0)), strict=True):
            part[:] = 0.9 * part + gradient
        weight -= PROBE_LR / np.sqrt(F) * speed[0]
        bias -= PROBE_LR / np.sqrt(F) * speed[1]
    np.testing.assert_allclose(probe.linear.weight.detach().numpy(), weight, atol=1e-4)
    np.testing.assert_allclose(probe.linear.bias.detach().numpy(), bias, atol=1e-4)
    assert probe.seen() == pytest.approx(100 * np.mean(right), abs=0.1)
    assert probe.seen() is None


def test_the_probe_learns_and_tests_by_what_it_has_seen_on_average():
    probe = OnlineProbe(F, torch.arange(100) % CLASSES)
    for ids, features in steps(300):
        probe.step(ids, features)
    ids, features = next(steps(1))
    score = probe.accuracy(features[0], ids % CLASSES)
    assert score.percent > 80
    assert probe.norm.training


def test_images_without_a_label_teach_nothing():
    labels = torch.arange(100) % CLASSES
    some, all_ = OnlineProbe(F, torch.where(torch.arange(100) < 50, labels, -1)), OnlineProbe(F, labels)
    for ids, features in steps(3):
        some.step(ids, features)
        known = ids < 50
        all_.step(ids[known], features[:, known])
    torch.testing.assert_close(some.linear.weight, all_.linear.weight)
    before = some.linear.weight.clone()
    some.step(torch.arange(50, 50 + N), features)  # none of these has one
    assert torch.equal(some.linear.weight, before)


def test_the_probe_sends_no_gradient_to_what_it_is_shown():
    probe = OnlineProbe(F, torch.arange(100) % CLASSES)
    ids, features = next(steps(1))
    features.requires_grad_()
    probe.step(ids, features)
    assert features.grad is None
    assert probe.linear.weight.grad is not None


def test_a_probe_goes_on_as_if_it_had_never_stopped():
    labels = torch.arange(100) % CLASSES
    whole, first, second = (OnlineProbe(F, labels) for _ in range(3))
    for i, (ids, features) in enumerate(steps(20)):
        whole.step(ids, features)
        if i < 10:
            first.step(ids, features)
        if i == 9:
            second.load_state_dict(first.state_dict())
        if i >= 10:
            second.step(ids, features)
    assert torch.equal(whole.linear.weight, second.linear.weight)
    assert torch.equal(whole.norm.running_var, second.norm.running_var)


def test_a_probe_of_other_classes_or_not_finite_is_not_gone_on_with():
    probe, labels = OnlineProbe(F, torch.arange(100) % CLASSES), torch.arange(100) % 3
    state = probe.state_dict()
    assert not OnlineProbe(F, labels).load_state_dict(state)
    state["linear"]["weight"][0, 0] = float("nan")
    assert not OnlineProbe(F, torch.arange(100) % CLASSES).load_state_dict(state)


@pytest.fixture
def split():
    images = torch.randint(
        0, 256, (90, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    source, ids, labels = ArraySource(images), torch.arange(90), torch.arange(90) % 3
    return EvalSplit(Labelled(source, ids[:60], labels[:60]), Labelled(source, ids[60:], labels[60:]), "")


def test_labels_of_images_that_are_tested_on_are_not_learned_from(split):
    labels = online_labels(split, 90)
    assert (labels[60:] == -1).all()
    assert torch.equal(labels[:60], split.train.labels)


def test_online_neighbours_are_the_offline_ones_on_a_part_of_the_images(split, monkeypatch):
    monkeypatch.setattr("frossl.evaluation.online.KNN_MAX_TRAIN", 40)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, 5)).requires_grad_(False)
    wrapped = _Floats(encoder)
    online = OnlineKnn(split)
    assert (len(online.train.ids), len(online.test.ids)) == (40, 30)
    assert len(set(online.train.ids.tolist())) == 40
    expected = knn_accuracy(*_features(wrapped, online.train), *_features(wrapped, online.test), k=20)
    assert online.measure(wrapped) == {"knn": expected.percent, "tested": 30}
    assert [i.item() for i in OnlineKnn(split).train.ids] == online.train.ids.tolist()


class _Floats(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        return self.inner(images.float() / 255)


def _features(encoder, images):
    return encoder(images.source.images[images.ids]), images.labels
