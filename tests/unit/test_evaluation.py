"""kNN and probes against plain versions of themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from frossl.config import ViewSpec
from frossl.data import ArraySource, Dataset, Labels, Part, held_out, open_dataset
from frossl.errors import InputError
from frossl.evaluation import (
    Labelled,
    Score,
    bag_of_features,
    extract,
    few_label_accuracy,
    knn_accuracy,
    labelled_split,
    logistic_accuracy,
    pixels,
)
from frossl.networks import Encoder

IDENTITY = ((0.0,) * 3, (1.0,) * 3)


@pytest.fixture
def clusters():
    """Three overlapping classes in ten dimensions, with scales that differ by dimension."""
    random = np.random.default_rng(0)
    centers, scales = random.normal(size=(3, 10)), np.geomspace(0.1, 10, 10)
    labels = np.arange(360) % 3
    rows = (centers[labels] + 1.2 * random.normal(size=(360, 10))) * scales
    rows, labels = torch.tensor(rows, dtype=torch.float32), torch.tensor(labels)
    return rows[:240], labels[:240], rows[240:], labels[240:]


@pytest.mark.parametrize("k", [1, 20, 240])
def test_knn_equals_a_brute_force_vote(clusters, k):
    bank, bank_labels, test, test_labels = (x.numpy() for x in clusters)
    right = 0
    for row, label in zip(test, test_labels, strict=True):
        cosine = [np.dot(row, b) / np.linalg.norm(row) / np.linalg.norm(b) for b in bank]
        votes = [0.0, 0.0, 0.0]
        for i in sorted(range(len(bank)), key=lambda i: -cosine[i])[:k]:
            votes[bank_labels[i]] += math.exp(cosine[i] / 0.07)
        right += int(np.argmax(votes) == label)
    assert knn_accuracy(*clusters, k=k).percent == pytest.approx(100 * right / len(test))


@pytest.mark.parametrize("k", [0, 241])
def test_knn_refuses_a_k_that_cannot_be(clusters, k):
    with pytest.raises(InputError, match=f"k = {k} with 240"):
        knn_accuracy(*clusters, k=k)


def test_logistic_probe_takes_the_regularization_that_is_best_on_held_out_labels(clusters):
    bank, bank_labels, test, test_labels = (x.numpy() for x in clusters)
    mean, std = bank.mean(0), bank.std(0, ddof=1)
    bank, test = (bank - mean) / std, (test - mean) / std
    aside = held_out(clusters[1]).numpy()

    def score(strength, train, labels, rows, wanted):
        return LogisticRegression(C=strength, max_iter=2000).fit(train, labels).score(rows, wanted)

    best = max(
        (0.001, 0.01, 0.1, 1.0),
        key=lambda c: score(c, bank[~aside], bank_labels[~aside], bank[aside], bank_labels[aside]),
    )
    expected = 100 * score(best, bank, bank_labels, test, test_labels)
    assert logistic_accuracy(*clusters).percent == pytest.approx(expected, abs=0.5)
    assert expected > 60


def test_few_labels_are_worse_than_all_and_reproducible(clusters):
    few = few_label_accuracy(*clusters, per_class=2)
    assert 34 < few.percent < logistic_accuracy(*clusters).percent
    assert few.deviation > 0
    assert few == few_label_accuracy(*clusters, per_class=2)
    assert few != few_label_accuracy(*clusters, per_class=2, seed=1)


def test_a_score_knows_its_binomial_deviation():
    score = Score.of(torch.tensor([True] * 30 + [False] * 70))
    assert (score.percent, score.deviation) == (
        pytest.approx(30.0),
        pytest.approx(100 * math.sqrt(0.21 / 100)),
    )
    assert str(score) == "30.0 ± 4.6"


def test_extraction_uses_evaluation_mode_and_puts_the_mode_back():
    source = ArraySource(torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8))
    encoder = nn.Sequential(nn.Flatten(), _ToFloat(), nn.BatchNorm1d(192)).train()
    features, labels = extract(encoder, Labelled(source, torch.tensor([4, 2]), torch.tensor([1, 0])))
    assert labels.tolist() == [1, 0]
    expected = source.images[[4, 2]].flatten(1).float() / math.sqrt(1 + 1e-5)
    torch.testing.assert_close(features, expected)
    assert encoder.training
    assert encoder[2].num_batches_tracked == 0


class _ToFloat(nn.Module):
    def forward(self, x):
        return x.float()


def test_pixels_are_the_images_minus_one_half():
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    ids = torch.arange(4)
    features, _ = pixels(Labelled(ArraySource(images), ids, ids))
    torch.testing.assert_close(features, images.flatten(1).float() / 255 - 0.5)
    larger, _ = pixels(Labelled(ArraySource(images.repeat(1, 1, 3, 3)), ids, ids))
    assert larger.shape == (4, 3 * 32 * 32)


def test_an_image_that_cannot_be_read_is_left_out_with_its_label(photos):
    (photos / "3.jpg").write_bytes(b"broken")
    source = open_dataset(photos, size=16).train.source
    ids = torch.arange(len(source))
    rows, labels = pixels(Labelled(source, ids, 100 + ids))
    assert len(rows) == len(labels) == 11
    assert 100 + list(source.files.names).index("3.jpg") not in labels


def dataset(train, test=None):
    def part(labels):
        images = torch.zeros(len(labels), 3, 4, 4, dtype=torch.uint8)
        return Part(ArraySource(images), Labels(torch.tensor(labels), ("a", "b")))

    return Dataset("toys", part(train), part(test) if test else None, IDENTITY)


def test_the_data_sets_own_test_part_is_used_and_unlabelled_images_are_not():
    split = labelled_split(dataset([0, 1, -1, 1], [1, -1, 0]))
    assert split.bank.ids.tolist() == [0, 1, 3]
    assert split.test.labels.tolist() == [1, 0]


def test_without_a_test_part_a_fifth_is_held_out():
    split = labelled_split(dataset([0] * 20 + [1] * 10))
    assert len(split.test.ids) == 6
    assert not set(split.bank.ids.tolist()) & set(split.test.ids.tolist())
    assert "20%" in split.note


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1]])
def test_too_few_classes_or_images_are_refused(labels):
    with pytest.raises(InputError, match="classes"):
        labelled_split(dataset(labels))


def test_data_without_labels_is_refused():
    images = ArraySource(torch.zeros(4, 3, 4, 4, dtype=torch.uint8))
    with pytest.raises(InputError, match="no labels"):
        labelled_split(Dataset("toys", Part(images, None), None, IDENTITY))


def test_one_crop_of_the_whole_image_is_the_image(images_and_encoder):
    images, encoder = images_and_encoder
    whole = ViewSpec(size=8, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0)
    features, labels = bag_of_features(encoder, images, whole, crops=1)
    expected, same = extract(encoder, images)
    torch.testing.assert_close(features, expected)
    assert torch.equal(labels, same)


def test_a_bag_is_the_mean_over_crops_and_the_same_every_time(images_and_encoder):
    images, encoder = images_and_encoder
    view = ViewSpec(size=8, scale=(0.25, 0.5), jitter=1.0, gray=1.0, blur=1.0)
    bag, _ = bag_of_features(encoder, images, view, crops=64)
    torch.testing.assert_close(bag, bag_of_features(encoder, images, view, crops=64)[0])
    # features are linear here, so the bag's mean color is that of the image, nearly: no color was changed
    colors = bag.view(-1, 3, 64).mean(2)
    expected = extract(encoder, images)[0].view(-1, 3, 64).mean(2)
    torch.testing.assert_close(colors, expected, atol=0.25, rtol=0)
    assert (bag - bag_of_features(encoder, images, view, crops=1)[0]).abs().mean() > 0.05


@pytest.fixture
def images_and_encoder():
    small = torch.rand(10, 3, 2, 2)
    pictures = (nn.functional.interpolate(small, (8, 8), mode="bilinear") * 255).to(torch.uint8)
    source = ArraySource(pictures)
    images = Labelled(source, torch.arange(10), torch.arange(10) % 2)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(192, 192, bias=False))
    nn.init.eye_(backbone[1].weight)
    return images, Encoder(backbone, size=8, mean=(0.5,) * 3, std=(0.25,) * 3)
