"""Recipes: complete, with a promise, and with the settings that the paper and the released files have."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import pytest
import torch

import frossl.engine as engine
from frossl import list_names, recipes
from frossl.config import Config
from frossl.data import NAMED, ArraySource, Dataset, Split
from frossl.engine.settle import split_options
from frossl.errors import ConfigError, InputError
from frossl.methods import METHODS
from tests.support import ROOT

RECIPES = list(recipes.recipes())
FOR_DATA = [name for name in RECIPES if name.startswith(("paper-", "released-"))]
NAMED_METHODS = [
    (name, method)
    for name in RECIPES
    for method in tomllib.loads(recipes.recipe_text(name)).get("methods", {})
]
STORED = {"stl10": 96, "tiny-imagenet": 64, "imagenet100": 256, "imagenet": 256}  # pixels; the others: 32


def settled(config: Config, *, views: int | None = None) -> Config:
    """Settled for a few images of the size that its data set has."""
    size = STORED.get(config.data.source, 32)
    images = ArraySource(torch.zeros(8, 3, size, size, dtype=torch.uint8))
    if config.network.freeze:  # stands beside weights that only the user has
        config = replace(config, network=replace(config.network, freeze=0))
    engine.check(config)
    data = Dataset(config.data.source, Split(images, None), None, ((0.5,) * 3, (0.25,) * 3))
    return engine.settle(config, data, views=views)


@pytest.mark.parametrize(
    ("stored", "device", "view", "stem", "stages"),
    [
        (32, "cpu", 20, "fast", 3),
        (28, "cpu", 20, "fast", 3),
        (48, "cpu", 32, "fast", None),
        (64, "cpu", 32, "fast", None),
        (96, "cpu", 48, "native", None),
        (32, None, 20, "fast", 3),
    ],
)
def test_small_images_get_small_networks(stored, device, view, stem, stages, monkeypatch):
    """What `frossl pretrain DATA` chooses, as docs/decisions.md measured it; what is given stays."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    images = ArraySource(torch.zeros(8, 3, stored, stored, dtype=torch.uint8))
    data = Dataset("images", Split(images, None), None, ((0.5,) * 3, (0.25,) * 3))
    config = recipes.recipe("default")
    config = replace(config, train=replace(config.train, device=device))
    found = engine.settle(config, data)
    assert (found.views[0].size, found.network.stem, found.network.stages) == (view, stem, stages)
    assert engine.settle(found, data) == found
    given = replace(config, network=replace(config.network, stem="fast"))
    assert engine.settle(given, data).network.stages is None


# What the files have, written down from the files: optimizer and rate, weight decay, projector.
# Columns: CIFAR, STL-10, Tiny ImageNet, ImageNet-100. One entry stands for all four.
COLUMNS = {"cifar10": 0, "cifar100": 0, "stl10": 1, "tiny-imagenet": 2, "imagenet100": 3, "imagenet": 3}
RELEASED = {
    "frossl": ("lars 0.3|lars 0.1|lars 0.3|lars 0.3", "1e-4", "2048-2048-1024"),
    "ivne": ("lars 0.3", "1e-4", "2048-2048-1024"),
    "mmcr": ("lars 0.3", "1e-4", "2048-2048-512|2048-2048-512|2048-2048-1024|2048-2048-512"),
    "vicreg": ("lars 0.3", "1e-4", "2048-2048-2048|2048-2048-1024|2048-2048-1024|2048-2048-2048"),
    "barlow": ("lars 0.3", "1e-4", "2048-2048-2048"),
    "corinfomax": (
        "lars 0.3|lars 0.5|lars 0.5|lars 0.5",
        "1e-4",
        "2048-2048-64|4096-4096-256|2048-2048-64|4096-4096-256",
    ),
    "wmse": (
        "adam 2e-3|lars 0.1|lars 0.1|adam 2e-3",
        "1e-6|1e-4|1e-4|1e-6",
        "1024-64|1024-128|1024-128|1024-64",
    ),
    "simclr": ("lars 0.3", "1e-4", "2048-128|2048-512|4096-512|4096-512"),
    "moco": ("sgd 0.3|lars 0.3|lars 0.3|sgd 0.3", "1e-4", "2048-256"),
    "byol": ("lars 1.0|lars 1.0|lars 1.0|lars 0.5", "1e-5|1e-5|1e-5|1e-6", "4096-256"),
    "simsiam": ("sgd 0.5", "1e-5", "2048-2048-2048"),
    "swav": ("lars 0.6", "1e-6", "2048-128"),
    "dino": ("lars 0.3", "1e-6", "2048-2048-256"),
    "empssl": ("lars 0.3", "1e-4", "4096-512"),
}
OWN = {
    "ivne": [{"invariance_weight": 4.16, "variance_weight": 1.0}] * 4,
    "mmcr": [{"local_weight": 0.0}] * 4,
    "vicreg": [{"invariance_weight": 25, "variance_weight": 50, "covariance_weight": 1}] * 4,
    "barlow": [
        {"invariance_weight": s, "covariance_weight": pytest.approx(s * 0.0051)}
        for s in (0.1, 0.1, 0.005, 0.1)
    ],
    "corinfomax": [{"invariance_weight": a, "momentum": 0.01, "eps": 1e-6} for a in (250, 500, 500, 500)],
    "wmse": [{"sub_batch": s, "iterations": i} for s, i in ((128, 1), (256, 4), (256, 4), (128, 1))],
    "simclr": [{"temperature": t} for t in (0.3, 0.5, 0.5, 0.2)],
    "moco": [
        {"queue_size": q, "temperature": 0.2, "ema": start, "ema_end": end}
        for q, start, end in ((32768, 0.99, 0.999), (32768, 1, 1), (32768, 1, 1), (65536, 0.99, 0.999))
    ],
    "byol": [{"predictor_hidden": h, "ema": 0.99, "ema_end": 1} for h in (4096, 4096, 4096, 8192)],
    "simsiam": [{"predictor_hidden": 512}] * 4,
    "swav": [{"prototypes": 3000, "queue_size": 3840, "temperature": 0.1}] * 4,
    "dino": [{"outputs": 4096, "ema": 0.9995, "ema_end": 1.0, "target_temperature": 0.07}] * 4,
    "empssl": [{"invariance_weight": 200, "variance_weight": 1, "eps": 0.2}] * 2,
}
EPOCHS = {
    "paper": {"cifar10": 1000, "cifar100": 1000, "stl10": 500, "tiny-imagenet": 800, "imagenet100": 800},
    "released": {"cifar10": 1000, "cifar100": 1000, "stl10": 500, "tiny-imagenet": 800, "imagenet100": 400},
}
PROBED = {  # percent, FroSSL with two views
    "cifar10": 92.8,
    "cifar100": 70.6,
    "stl10": 87.3,
    "tiny-imagenet": 44.2,
    "imagenet100": 78.2,
    "imagenet": 33.4,
}


def facts(config: Config) -> tuple[str, float, float, str]:
    optim, network = config.optim, config.network
    widths = [network.projector_hidden] * (network.projector_layers - 1) + [network.projector_out]
    return optim.optimizer, optim.base_lr, optim.weight_decay, "-".join(map(str, widths))


@pytest.mark.parametrize(("data", "column"), COLUMNS.items())
def test_released_recipes_have_the_numbers_of_the_files(data, column):
    def entry(text: str) -> str:
        cells = text.split("|")
        return cells[column % len(cells)]

    name = f"released-{data}"
    described = tomllib.loads(recipes.recipe_text(name))["methods"]
    assert set(described) | {"frossl"} == set(RELEASED) - ({"empssl"} if column > 1 else set())
    for method in {*described, "frossl"}:
        config = recipes.recipe(name, method=method)
        rate, decay, projector = map(entry, RELEASED[method])
        own = OWN.get(method, [{}] * 4)[column]
        if (data, method) == ("cifar100", "corinfomax"):
            projector, own = "4096-4096-128", {"invariance_weight": 1000.0}
        optimizer, _, lr = rate.partition(" ")
        assert facts(config) == (optimizer, float(lr), float(decay), projector), method
        assert {key: config.objective.options[key] for key in own} == own, method
        epochs = 30 if method == "empssl" else EPOCHS["released"].get(data, 100)
        assert config.train.epochs == epochs, method


def test_weights_of_frossl_in_the_files():
    weights = {data: recipes.recipe(f"released-{data}").objective.options for data in COLUMNS}
    assert {options["normalize"] for options in weights.values()} == {"columns"}
    assert [options["invariance_weight"] for options in weights.values()] == [1.0, 1.0, 1.4, 1.0, 1.0, 2.0]


def test_batches_are_those_of_all_their_gpus():
    def batches(name: str) -> dict[str, int]:
        return {method: recipes.recipe(name, method=method).train.batch_size for method in RELEASED}

    assert batches("released-cifar10") == {**dict.fromkeys(RELEASED, 256), "empssl": 100}
    assert set(batches("released-stl10").values()) == {256}
    assert set(batches("released-tiny-imagenet").values()) == {512}
    many = batches("released-imagenet100")
    assert {method for method in many if many[method] == 512} == {"frossl", "mmcr", "corinfomax", "empssl"}
    assert set(many.values()) == {256, 512}
    of_the_text = {data: recipes.recipe(f"paper-{data}").train.batch_size for data in COLUMNS}
    assert of_the_text == {**dict.fromkeys(COLUMNS, 256), "tiny-imagenet": 512}


@pytest.mark.parametrize(("name", "method"), [pair for pair in NAMED_METHODS if pair[0] in FOR_DATA])
def test_what_lasts_a_number_of_epochs_lasts_that_many(name, method):
    config = recipes.recipe(name, method=method)
    epochs, options = config.train.epochs, config.objective.options
    without = {("wmse", "released-stl10"), ("wmse", "released-tiny-imagenet")}
    warmup = 0 if method == "empssl" or (method, name) in without else 10
    assert config.optim.warmup * epochs == pytest.approx(warmup)
    lasting = {
        "swav": {"freeze": 2, "queue_from": 50},
        "dino": {"freeze": 1, "temperature_warmup": 50},
    }
    for option, expected in lasting.get(method, {}).items():
        assert options[option] * epochs == pytest.approx(expected)


@pytest.mark.parametrize("data", COLUMNS)
def test_paper_recipes_have_the_numbers_of_the_text(data):
    for method in METHODS:
        config = recipes.recipe(f"paper-{data}", method=method)
        optimizer, lr, decay, projector = facts(config)
        assert (optimizer, lr, decay) == ("lars", 0.3, 1e-6)
        assert projector.split("-")[-1] == {"corinfomax": "256", "wmse": "64"}.get(method, "1024")
        assert config.train.epochs == EPOCHS["paper"].get(data, 100)
        assert config.network.backbone == "resnet18"
        assert config.network.stem == ("small" if data.startswith("cifar") else "native")
    options = recipes.recipe(f"paper-{data}", method="ivne").objective.options
    assert options["invariance_weight"] == options["variance_weight"]


def test_a_tenth_of_imagenet_and_all_of_the_others():
    shares = {name: recipes.recipe(name).data.fraction for name in FOR_DATA}
    assert {name for name in shares if shares[name] < 1} == {"paper-imagenet", "released-imagenet"}
    assert shares["paper-imagenet"] == shares["released-imagenet"] == 0.1


def colors(config: Config) -> list[tuple[float, ...]]:
    return [
        (v.brightness, v.contrast, v.saturation, v.hue, v.blur, v.solarize)
        for v in config.views
        for _ in range(v.count)
    ]


def test_views_are_those_of_the_paper_and_on_stl10_those_of_the_files():
    symmetric = [(0.8, 0.8, 0.8, 0.2, 0.5, 0.0)] * 2
    asymmetric = [(0.4, 0.4, 0.2, 0.1, 1.0, 0.0), (0.4, 0.4, 0.2, 0.1, 0.1, 0.2)]
    weak = [(0.4, 0.4, 0.4, 0.1, 0.5, 0.0)] * 2
    for name in FOR_DATA:
        config = recipes.recipe(name)
        expected = {"tiny-imagenet": asymmetric}.get(config.data.source, symmetric)
        assert colors(config) == (weak if name == "released-stl10" else expected), name
        assert {v.size for v in config.views} == {min(224, STORED.get(config.data.source, 32))}
        assert {v.scale for v in config.views} == {(0.08, 1.0)}
    unblurred = [(0.8, 0.8, 0.8, 0.2, 0.0, 0.0)] * 2
    by_method = {m: colors(recipes.recipe("released-stl10", method=m)) for m in RELEASED}
    assert {m for m in by_method if by_method[m] == weak} == {"frossl", "ivne", "moco", "simsiam"}
    assert {m for m in by_method if by_method[m] == unblurred} == {
        *("mmcr", "vicreg", "barlow", "corinfomax", "wmse", "simclr", "byol", "swav")
    }


@pytest.mark.parametrize("data", COLUMNS)
@pytest.mark.parametrize("views", [2, 4, 8])
def test_paper_recipes_train_with_the_losses_of_that_time(data, views):
    """A of the authors for two views, B for more: their scales, written out here."""
    config = settled(recipes.recipe(f"paper-{data}", views=views), views=views)
    assert sum(spec.count for spec in config.views) == views
    z = torch.randn(views, 12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(views))
    if views == 2:
        unit = [(v - v.mean(0)) / (v - v.mean(0)).norm(dim=0) for v in z]
        distance = 1.4 * (unit[0] - unit[1]).square().sum() / 12
    else:
        unit = [v / v.norm(dim=1, keepdim=True) for v in z]
        distance = 2 * sum((u - sum(unit) / views).square().sum() for u in unit) / 12
    shares = [torch.linalg.eigvalsh(u.T @ u) / u.square().sum() for u in unit]
    spread = sum(share.square().sum().log() for share in shares)
    total = METHODS["frossl"].objective(**config.objective.options)(z).total
    torch.testing.assert_close(total, spread + distance)


def test_a_number_of_views_that_the_paper_has_no_weight_for_is_refused():
    with pytest.raises(InputError, match=r"3 views; give one of 2, 4, 8"):
        recipes.recipe("paper-stl10", views=3)
    assert sum(spec.count for spec in recipes.recipe("paper-stl10", method="mmcr", views=3).views) == 3
    assert recipes.recipe("released-stl10", views=3).objective.options["invariance_weight"] == 1.4


@pytest.mark.parametrize("text", ["at_views = 3", "at_views.4 = 3", "at_views = []"])
def test_settings_by_views_that_are_no_tables_are_refused_in_words(text):
    with pytest.raises(ConfigError, match="expected tables, by the number of views"):
        Config.from_toml(f"[methods.frossl]\n{text}", views=4)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete_and_states_its_promise(name):
    text = recipes.recipe_text(name)
    header = re.match(r"(#[^\n]*\n)+", text)
    assert header is not None
    first, *rest = header[0].splitlines()
    assert 20 < len(list_names("recipes")["recipes"][name]) <= 110
    assert first == "# " + list_names("recipes")["recipes"][name]
    assert any(line.startswith("# Promise: ") for line in rest)
    assert max(map(len, text.splitlines())) <= 118
    table = tomllib.loads(text)
    needed = {
        "network": {"backbone", "projector_hidden", "projector_out", "projector_layers"},
        "objective": {"method"},
        "optim": {"optimizer", "base_lr", "weight_decay"},
        "train": {"epochs", "batch_size"},
    }
    for part, keys in needed.items():
        assert keys <= set(table[part]), part
    if name in FOR_DATA:
        _, _, data = name.partition("-")
        assert table["data"]["source"] == data in NAMED
        assert {"size", "count", "scale", "blur"} <= set(table["views"][0])
        assert "published and never run to the end here" in " ".join(header[0].split("\n# "))
        assert f"FroSSL {PROBED[data]} %" in header[0]


@pytest.mark.parametrize(("name", "method"), NAMED_METHODS)
def test_what_a_recipe_says_of_a_method_can_be_built(name, method):
    assert method in METHODS
    config = settled(recipes.recipe(name, method=method))
    network = replace(config.network, width=0.125, projector_hidden=64)  # its own width: in the next test
    built = engine.build_method(replace(config, network=network))
    assert isinstance(built.objective, METHODS[method].objective)
    _, given = split_options(config)
    given.pop("queue_size", None)  # MoCo's: of the Module, not of the loss
    assert given.items() <= built.objective.options.items()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_can_be_built_as_it_stands(name):
    config = settled(recipes.recipe(name))
    built, network = engine.build_method(config), config.network
    last = [module for module in built.projector.modules() if isinstance(module, torch.nn.Linear)][-1]
    assert (last.in_features, last.out_features) == (network.projector_hidden, network.projector_out)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("method", ["frossl", "byol", "empssl", "tico"])
def test_the_text_for_a_method_is_the_recipe_for_that_method(name, method):
    text = recipes.recipe_text(name, method=method)
    assert Config.from_toml(text) == recipes.recipe(name, method=method)
    assert Config.from_toml(text, method=method) == recipes.recipe(name, method=method)
    header = recipes.recipe_text(name).partition("\n[")[0]
    assert text.startswith(header)
    assert f"# This file: what the recipe {name} says for the method {method}." in text.splitlines()


def test_the_text_for_a_method_keeps_its_settings_for_more_views():
    text = recipes.recipe_text("paper-stl10", method="frossl")
    more = Config.from_toml(text, views=8)
    assert more.objective == recipes.recipe("paper-stl10", views=8).objective
    assert more.objective != recipes.recipe("paper-stl10").objective


def test_misspelt_names_are_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean released-stl10"):
        recipes.recipe_text("relased-stl10")
    with pytest.raises(InputError, match="did you mean byol"):
        recipes.recipe_text("released-stl10", method="boyl")


def test_the_page_of_recipes_names_them_all():
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE)) == set(RECIPES)
