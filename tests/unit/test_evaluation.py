"""kNN and probes against plain versions of themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from torch import nn

from frossl.config import Network, ViewSpec
from frossl.data import ArraySource, Dataset, Labels, Split, held_out, open_dataset, with_test
from frossl.errors import InputError, NotFiniteError
from frossl.evaluation import (
    KNN,
    PROTOCOLS,
    EvalSplit,
    Evaluation,
    Evaluations,
    FineTune,
    Labelled,
    LinearProbe,
    Score,
    SGDProbe,
    SupervisedData,
    bag_of_features,
    extract,
    few_label_accuracy,
    finetune_accuracy,
    knn_accuracy,
    labelled_split,
    linear_probe,
    logistic_accuracy,
    parse_protocol,
    pixels,
)
from frossl.networks import Encoder, build_backbone

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
    train, train_labels, test, test_labels = (x.numpy() for x in clusters)
    right = 0
    for row, label in zip(test, test_labels, strict=True):
        cosine = [np.dot(row, b) / np.linalg.norm(row) / np.linalg.norm(b) for b in train]
        votes = [0.0, 0.0, 0.0]
        for i in sorted(range(len(train)), key=lambda i: -cosine[i])[:k]:
            votes[train_labels[i]] += math.exp(cosine[i] / 0.07)
        right += int(np.argmax(votes) == label)
    assert knn_accuracy(*clusters, k=k).percent == pytest.approx(100 * right / len(test))


@pytest.mark.parametrize("k", [0, 241])
def test_knn_refuses_a_k_that_cannot_be(clusters, k):
    with pytest.raises(InputError, match=f"k = {k} with 240"):
        knn_accuracy(*clusters, k=k)


def test_logistic_probe_takes_the_regularization_that_is_best_on_held_out_labels(clusters):
    train, train_labels, test, test_labels = (x.numpy() for x in clusters)
    mean, std = train.mean(0), train.std(0, ddof=1)
    train, test = (train - mean) / std, (test - mean) / std
    aside = held_out(clusters[1]).numpy()

    def score(strength, train, labels, rows, wanted):
        return LogisticRegression(C=strength, max_iter=2000).fit(train, labels).score(rows, wanted)

    best = max(
        (0.001, 0.01, 0.1, 1.0),
        key=lambda c: score(c, train[~aside], train_labels[~aside], train[aside], train_labels[aside]),
    )
    expected = 100 * score(best, train, train_labels, test, test_labels)
    assert logistic_accuracy(*clusters).percent == pytest.approx(expected, abs=0.5)
    assert expected > 60


@pytest.mark.parametrize("classes", [2, 3])
def test_few_labels_have_the_mean_accuracy_of_ten_fits_of_scikit_learn(clusters, classes):
    train, labels, test, wanted = clusters
    train, labels = train[labels < classes], labels[labels < classes]
    test, wanted = test[wanted < classes], wanted[wanted < classes]
    mean, std = train.mean(0), train.std(0)
    scores = []
    for draw in range(10):
        random = np.random.default_rng((0, draw))
        ids = [random.permutation(np.flatnonzero(labels.numpy() == c))[:5] for c in range(classes)]
        rows = ((train - mean) / std)[np.concatenate(ids)].double().numpy()
        model = LogisticRegression(C=0.1, max_iter=5000, tol=1e-8).fit(
            rows, labels[np.concatenate(ids)].numpy()
        )
        scores.append(100 * model.score(((test - mean) / std).numpy(), wanted.numpy()))
    assert few_label_accuracy(train, labels, test, wanted, per_class=5).percent == pytest.approx(
        np.mean(scores)
    )


def test_features_of_any_size_and_type_are_probed(clusters):
    train, labels, test, wanted = clusters
    expected = logistic_accuracy(*clusters).percent
    constant = torch.full((len(train), 1), 3.0)
    for scale in (1e-3, 1e30):
        rows, asked = torch.cat([scale * train, constant], 1), torch.cat([scale * test, constant[:120]], 1)
        assert logistic_accuracy(rows, labels, asked, wanted).percent == pytest.approx(expected, abs=0.5)
    assert logistic_accuracy(train.double(), labels, test.double(), wanted).percent == expected
    pair = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert logistic_accuracy(pair, torch.tensor([3, 8]), pair, torch.tensor([3, 8])).percent == 100
    with pytest.raises(InputError, match="one class"):
        logistic_accuracy(train, torch.zeros_like(labels), test, wanted)


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


@pytest.mark.parametrize(("right", "images"), [(30, 100), (0, 20), (20, 20), (999, 1000)])
def test_the_interval_of_a_count_is_wilsons(right, images):
    score = Score.of(torch.arange(images) < right)
    expected = binomtest(right, images).proportion_ci(method="wilson")
    assert score.interval == (
        pytest.approx(100 * expected.low, abs=0.01),
        pytest.approx(100 * expected.high, abs=0.01),
    )


def test_the_interval_over_draws_covers_both_the_draws_and_the_count():
    """Draws of a classifier whose true accuracy varies by 5 points, tested on 200 images, many times."""
    random, inside = np.random.default_rng(0), 0
    for _ in range(400):
        luck = random.normal(0, 0.03)  # of the test images, common to all draws
        shares = 0.6 + luck + random.normal(0, 0.05, size=10)
        score = Score.over([Score(100 * share, 0.0, 200) for share in shares])
        low, high = score.interval
        inside += low <= 60 <= high
    assert 0.9 < inside / 400 < 0.995
    assert score.draws == 10


def test_five_guesses_count_where_there_are_more_classes():
    votes = torch.rand(50, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 8
    score = Score.of_ranked(votes, labels)
    order = np.argsort(-votes.numpy(), axis=1)
    assert score.percent == pytest.approx(100 * np.mean(order[:, 0] == labels.numpy()))
    among = [labels[i].item() in order[i, :5] for i in range(50)]
    assert score.top5 == pytest.approx(100 * np.mean(among))
    assert Score.of_ranked(votes[:, :5], labels.clamp_max(4)).top5 is None


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
        images = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 4, 4)
        return Split(ArraySource(images.contiguous()), Labels(torch.tensor(labels), ("a", "b")))

    return Dataset("toys", part(train), part(test) if test else None, IDENTITY)


def test_the_data_sets_own_test_part_is_used_and_unlabelled_images_are_not():
    split = labelled_split(dataset([0, 1, -1, 1], [1, -1, 0]))
    assert split.train.ids.tolist() == [0, 1, 3]
    assert split.test.labels.tolist() == [1, 0]


def test_without_a_test_part_a_fifth_is_held_out():
    split = labelled_split(dataset([0] * 20 + [1] * 10))
    assert len(split.test.ids) == 6
    assert not set(split.train.ids.tolist()) & set(split.test.ids.tolist())
    assert "20%" in split.note


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1]])
def test_too_few_classes_or_images_are_refused(labels):
    with pytest.raises(InputError, match="classes"):
        labelled_split(dataset(labels))


def test_data_without_labels_is_refused():
    images = ArraySource(torch.zeros(4, 3, 4, 4, dtype=torch.uint8))
    with pytest.raises(InputError, match="no labels"):
        labelled_split(Dataset("toys", Split(images, None), None, IDENTITY))


def test_one_crop_of_the_whole_image_is_the_image(images_and_encoder):
    images, encoder = images_and_encoder
    whole = ViewSpec(size=8, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    features, labels = bag_of_features(encoder, images, whole, crops=1)
    expected, same = extract(encoder, images)
    torch.testing.assert_close(features, expected)
    assert torch.equal(labels, same)


def test_a_bag_is_the_mean_over_crops_and_the_same_every_time(images_and_encoder):
    images, encoder = images_and_encoder
    view = ViewSpec(size=8, scale=(0.25, 0.5), flip=0.5, jitter=1.0, gray=1.0, blur=1.0)
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


def test_classes_that_nobody_could_learn_are_named():
    with pytest.raises(InputError, match="1 test classes without training images"):
        labelled_split(
            Dataset(
                "toys",
                Split(_blank(4), Labels(torch.tensor([0, 1, 0, 1]), ("a", "b", "c"))),
                Split(_blank(3), Labels(torch.tensor([0, 1, 2]), ("a", "b", "c"))),
                IDENTITY,
            )
        )


def _blank(images):
    return ArraySource(torch.zeros(images, 3, 4, 4, dtype=torch.uint8))


def test_other_images_to_test_on_are_matched_by_the_names_of_their_classes():
    data = Dataset(
        "toys", Split(_blank(4), Labels(torch.tensor([0, 1, 1, 0]), ("cat", "dog"))), None, IDENTITY
    )
    other = Dataset(
        "more", Split(_blank(3), Labels(torch.tensor([0, -1, 1]), ("dog", "cat"))), None, IDENTITY
    )
    split = labelled_split(with_test(data, other))
    assert split.train.labels.tolist() == [0, 1, 1, 0]
    assert (split.test.ids.tolist(), split.test.labels.tolist()) == ([0, 2], [1, 0])
    strange = Dataset("more", Split(_blank(2), Labels(torch.tensor([0, 1]), ("dog", "cow"))), None, IDENTITY)
    with pytest.raises(InputError, match="'cow'"):
        labelled_split(with_test(data, strange))
    with pytest.raises(InputError, match="more has no labels"):
        with_test(data, Dataset("more", Split(_blank(2), None), None, IDENTITY))


def test_features_that_are_not_finite_are_refused(images_and_encoder):
    images, encoder = images_and_encoder
    with torch.no_grad():
        encoder.backbone[1].weight[0, 0] = float("nan")
    with pytest.raises(NotFiniteError, match="10 of 10 images are not finite"):
        extract(encoder, images)


def test_more_labels_a_class_than_there_are_cannot_be_drawn(clusters):
    with pytest.raises(InputError, match="the smallest class has 80"):
        few_label_accuracy(*clusters, per_class=81)


@pytest.fixture
def colors():
    """Images of one color each, which no crop and no flip changes: four classes, overlapping."""
    random = np.random.default_rng(0)
    labels = np.arange(480) % 4
    centers = np.array([[60, 60, 60], [120, 60, 60], [60, 120, 60], [110, 110, 60]])
    values = np.clip(centers[labels] + 25 * random.normal(size=(480, 3)), 0, 255).astype(np.uint8)
    images = torch.from_numpy(np.repeat(values, 64, axis=1).reshape(480, 3, 8, 8))
    source, ids, labels = ArraySource(images), torch.arange(480), torch.from_numpy(labels)
    split = EvalSplit(
        Labelled(source, ids[:240], labels[:240]), Labelled(source, ids[240:], labels[240:]), ""
    )
    encoder = Encoder(_Mean(), size=8, mean=(0.3,) * 3, std=(0.1,) * 3)
    return split, encoder


class _Mean(nn.Module):
    """The mean color, by a layer that can be trained."""

    num_features = 3

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.mix.weight)

    def forward(self, x):
        return self.mix(x.mean((2, 3)))


def test_the_papers_probe_agrees_with_logistic_regression_where_crops_change_nothing(colors):
    split, encoder = colors
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    found = linear_probe(encoder, split, SupervisedData(100, batch_size=64))
    train, test = extract(encoder, split.train), extract(encoder, split.test)
    model = LogisticRegression(C=1e4, max_iter=5000).fit(train[0].numpy(), train[1].numpy())
    expected = 100 * model.score(test[0].numpy(), test[1].numpy())
    assert found.percent == pytest.approx(expected, abs=0.5)
    assert 60 < expected < 95
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())


def test_the_papers_probe_follows_its_schedule(colors, monkeypatch):
    split, encoder = colors
    rates = []
    step = torch.optim.SGD.step

    def watched(self, *arguments):
        rates.append((self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]))
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    linear_probe(encoder, split, SupervisedData(10, batch_size=120))
    expected = [(0.3, 0)] * 12 + [(pytest.approx(0.03), 0)] * 4 + [(pytest.approx(0.003), 0)] * 4
    assert rates == expected


def test_lessons_show_every_image_once_an_epoch_in_another_order(colors):
    split, encoder = colors
    by_epoch: dict[int, list[int]] = {}
    told = []
    supervised = SupervisedData(3, batch_size=100, progress=lambda done, total: told.append((done, total)))
    for _, labels, clock in supervised.batches(split.train, encoder):
        by_epoch.setdefault(clock.epoch, []).extend(labels.tolist())
    assert all(sorted(labels) == sorted(split.train.labels.tolist()) for labels in by_epoch.values())
    assert by_epoch[0] != by_epoch[1]
    assert told[-1] == (9, 9)
    assert len(list(SupervisedData(3, batch_size=100, max_steps=4).batches(split.train, encoder))) == 4


def test_fine_tuning_trains_a_copy_and_beats_a_frozen_encoder_that_lacks_something(colors):
    split, encoder = colors
    with torch.no_grad():
        encoder.backbone.mix.weight[1] = 0  # blind to green
    before = encoder.backbone.mix.weight.clone()
    frozen = linear_probe(encoder, split, SupervisedData(30, batch_size=60))
    tuned = finetune_accuracy(encoder, split, SupervisedData(30, batch_size=60), lr=0.03)
    assert tuned.percent > frozen.percent + 10
    assert torch.equal(encoder.backbone.mix.weight, before)
    mixed = finetune_accuracy(encoder, split, SupervisedData(30, batch_size=60), lr=0.03, mixup=0.5)
    assert mixed.percent > frozen.percent + 10


def test_mixup_shows_each_image_mixed_with_another_by_one_share(colors):
    split, encoder = colors
    shown: list[torch.Tensor] = []
    encoder.backbone.register_forward_pre_hook(lambda module, given: shown.append(given[0].detach().clone()))
    few = SupervisedData(1, batch_size=60, max_steps=1)
    for mixup in (0.0, 0.5):
        finetune_accuracy(encoder, split, few, mixup=mixup)
    plain, mixed = shown[0], next(x for x in shown[1:] if x.shape == shown[0].shape)
    moved, towards = (mixed - plain).flatten(), (plain.flip(0) - plain).flatten()
    share = (moved @ towards) / (towards @ towards)
    torch.testing.assert_close(moved, share * towards, atol=1e-4, rtol=0)
    assert 0 < share < 1
    with pytest.raises(InputError, match="mixup = -1"):
        finetune_accuracy(encoder, split, few, mixup=-1.0)


def test_fine_tuning_with_few_labels_learns_from_a_share_of_every_class(colors, monkeypatch):
    split, encoder = colors
    seen = []
    batches = SupervisedData.batches

    def watched(self, images, encoder):
        seen.append(images.labels)
        return batches(self, images, encoder)

    monkeypatch.setattr(SupervisedData, "batches", watched)
    finetune_accuracy(encoder, split, SupervisedData(1), fraction=0.1)
    assert seen[0].bincount().tolist() == [6, 6, 6, 6]
    for wrong in (0.0, 1.5):
        with pytest.raises(InputError, match="share of the labels"):
            finetune_accuracy(encoder, split, SupervisedData(1), fraction=wrong)


def test_layers_near_the_images_move_less_with_layer_decay():
    images = torch.randint(0, 256, (16, 3, 32, 32), dtype=torch.uint8)
    part = Labelled(ArraySource(images), torch.arange(16), torch.arange(16) % 2)
    backbone = build_backbone(Network("resnet18", width=0.125), size=32)
    encoder = Encoder(backbone, size=32, mean=(0.5,) * 3, std=(0.25,) * 3)
    moved = {}
    kept = Encoder.forward

    def change(decay):
        def watched(self, images):
            moved[decay] = (self.backbone.conv1.weight - backbone.conv1.weight).abs().mean().item()
            return kept(self, images)

        return watched

    for decay in (1.0, 0.5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Encoder, "forward", change(decay))
            finetune_accuracy(
                encoder, EvalSplit(part, part, ""), SupervisedData(2, batch_size=8), layer_decay=decay
            )
    assert 0 < moved[0.5] < 0.5 * moved[1.0]


@pytest.mark.parametrize(
    ("key", "protocol", "name"),
    [
        ("knn", KNN(), "kNN, k 20"),
        ("knn1", KNN(1), "kNN, k 1"),
        ("knn200", KNN(k=200), "kNN, k 200"),
        ("probe", LinearProbe(), "probe, all labels"),
        ("probe1", LinearProbe(1), "probe, 1 label a class"),
        ("probe10", LinearProbe(per_class=10), "probe, 10 labels a class"),
        ("linear", SGDProbe(), "linear probe as in the paper, 100 epochs, rate 0.3"),
        ("finetune", FineTune(), "fine-tuned, 1 of the labels, 30 epochs, rate 0.001"),
    ],
)
def test_a_key_and_a_protocol_are_the_same(key, protocol, name):
    assert (parse_protocol(key), parse_protocol(protocol)) == (protocol, protocol)
    assert (protocol.key, protocol.name) == (key, name)


def test_every_protocol_and_number_survives_its_key():
    assert len({protocol.kind for protocol in PROTOCOLS}) == len(PROTOCOLS)
    for protocol in PROTOCOLS:
        assert parse_protocol(protocol().key) == protocol()
        for number in (1, 2, 9, 10, 99, 12345) if protocol.key_number else ():
            one = protocol(**{protocol.key_number: number})
            assert parse_protocol(one.key) == one
            assert str(number) in one.name


def test_settings_that_are_not_in_the_key_are_in_the_name():
    tuned = FineTune(fraction=0.125, epochs=2, lr=0.01, layer_decay=0.7, mixup=0.2)
    assert tuned.name == "fine-tuned, 0.125 of the labels, 2 epochs, rate 0.01, layer decay 0.7, mixup 0.2"
    assert KNN(5, crops=8).name == "kNN, k 5, bag of 8 crops"
    assert LinearProbe(crops=2).name == "probe, all labels, bag of 2 crops"


@pytest.mark.parametrize(
    "key", ["", "k", "prob", "KNN", "knn-1", "knn2.5", "linear5", "finetune1", "20", "knn" + "9" * 5000]
)
def test_what_is_no_key_is_named_in_one_line(key):
    with pytest.raises(InputError, match="no protocol is called") as error:
        parse_protocol(key)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("kind", "make"), [("knn", KNN), ("probe", LinearProbe)])
def test_a_number_that_cannot_be_has_the_same_error_as_text_and_as_object(kind, make):
    with pytest.raises(InputError) as text:
        parse_protocol(f"{kind}0")
    with pytest.raises(InputError) as made:
        make(0)
    assert str(text.value) == str(made.value)
    labels = torch.arange(30) % 3
    with pytest.raises(InputError) as text:
        parse_protocol(f"{kind}31").settle(labels)
    with pytest.raises(InputError) as made:
        make(31).settle(labels)
    assert str(text.value) == str(made.value)


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (KNN, {"k": -1}, "k = -1; give at least 1"),
        (KNN, {"k": 2.5}, "k = 2.5; give a whole number"),
        (KNN, {"crops": 0}, "crops = 0; give 1 to 1000 crops"),
        (LinearProbe, {"crops": 1001}, "crops = 1001; give 1 to 1000 crops"),
        (LinearProbe, {"per_class": 0}, "per_class = 0; give at least 1"),
        (SGDProbe, {"epochs": 0}, "epochs = 0; give at least 1"),
        (SGDProbe, {"lr": float("nan")}, "lr = nan; give a positive"),
        (FineTune, {"lr": float("inf")}, "lr = inf; give a positive"),
        (FineTune, {"seed": -1}, "seed = -1; give 0 or more"),
        (FineTune, {"fraction": 0.0}, "fraction = 0; give a share of the labels"),
        (FineTune, {"fraction": float("nan")}, "fraction = nan; give a share of the labels"),
        (FineTune, {"mixup": -1.0}, "mixup = -1; give 0 for none"),
        (FineTune, {"mixup": float("nan")}, "mixup = nan; give 0 for none"),
        (FineTune, {"layer_decay": 2.0}, "optim.layer_decay"),
    ],
)
def test_a_protocol_refuses_a_setting_out_of_range_in_one_line(make, settings, words):
    with pytest.raises(InputError) as error:
        make(**settings)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_protocols_on_features_score_as_their_functions(clusters):
    assert KNN(3).accuracy(*clusters) == knn_accuracy(*clusters, k=3)
    assert LinearProbe().accuracy(*clusters) == logistic_accuracy(*clusters)
    assert LinearProbe(5).accuracy(*clusters) == few_label_accuracy(*clusters, per_class=5)


def test_neighbours_that_are_not_given_are_at_most_the_labelled_images():
    assert KNN().settle(torch.arange(9) % 3) == KNN(9)
    assert KNN(crops=2).settle(torch.arange(90) % 3) == KNN(20, crops=2)


def test_protocols_that_share_a_key_are_all_kept():
    specs = [FineTune(), KNN(), FineTune(seed=1), FineTune(fraction=0.1)]
    made = [Evaluation(spec.name, "", {"trained": Score(50.0, 1.0, 10)}, spec) for spec in specs]
    found = Evaluations.collect(made)
    assert list(found) == ["finetune", "knn", "finetune-2", "finetune-3"]
    assert [found.of(spec) for spec in specs] == made
    assert list(found.to_json()) == list(found)
    with pytest.raises(KeyError):
        found.of(KNN(1))
