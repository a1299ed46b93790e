"""Going on from weights, frozen parts, other channels, clipping, schedules, recipes: in whole runs."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch

import frossl
from frossl import engine, recipes
from frossl.config import Config, Objective, Optim
from frossl.data import ArraySource, Dataset, Split, open_dataset
from frossl.engine.step import train_step
from frossl.errors import InputError
from frossl.networks import read_weights
from frossl.runs import RunFolder
from tests.support.runs import SMALL, assert_same, train, weights


def with_network(config: Config, **values) -> Config:
    return replace(config, network=replace(config.network, **values))


def test_a_run_goes_on_from_the_encoder_of_another_with_its_stem_frozen(tmp_path):
    first = train(tmp_path / "first")
    file = first.path / "encoder.safetensors"
    network = with_network(SMALL, stem="fast", freeze=1, drop_path=0.1)
    config = replace(network, optim=Optim(base_lr=0.001, layer_decay=0.5))
    second = train(tmp_path / "second", config=config, weights=file)
    old, new = read_weights(file), read_weights(second.path / "encoder.safetensors")
    assert old.keys() == new.keys()
    moved = {name for name in old if not torch.equal(old[name], new[name])}
    assert not any(name.startswith(("conv1", "bn1")) for name in moved)
    assert {"layer1.0.conv1.weight", "layer2.1.bn2.running_mean"} <= moved
    # "untrained" is the network before this run: the one of the first
    assert second.knn().untrained == first.knn().trained
    assert all(p.requires_grad for p in second.encoder().parameters())
    file.write_bytes(file.read_bytes()[:-4] + b"abcd")
    with pytest.raises(InputError, match="missing or has changed"):
        second.knn()


def test_a_resume_needs_the_weights_no_more_once_there_is_a_checkpoint(tmp_path, monkeypatch):
    file = train(tmp_path / "first").path / "encoder.safetensors"
    config = with_network(SMALL, stem="fast")
    whole = train(tmp_path / "whole", config=config, weights=file)
    monkeypatch.setenv("FROSSL_MAX_STEPS", "4")
    cut = train(tmp_path / "cut", config=config, weights=file)
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    file.unlink()
    frossl.resume(cut.path, quiet=True)
    assert_same(weights(whole), weights(cut))


@pytest.mark.parametrize(
    ("values", "words"),
    [({"freeze": 1}, "give network.weights"), ({"channels": 1}, "the images have 3")],
)
def test_networks_that_make_no_sense_are_refused(values, words, tmp_path):
    with pytest.raises(InputError, match=words):
        train(tmp_path / "run", config=with_network(SMALL, **values))
    assert not (tmp_path / "run").exists()


def test_the_first_layers_move_least(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    optim = Optim("sgd", base_lr=0.01, momentum=0.0, weight_decay=0.0, layer_decay=0.5, warmup=0.0)

    def moved(config: Config, name: str) -> dict[str, torch.Tensor]:
        run = train(tmp_path / name, config=config)
        before = engine.build_method(run.config).backbone.state_dict()
        after = read_weights(run.path / "encoder.safetensors")
        return {key: after[key] - before[key] for key in after}

    even = moved(replace(SMALL, optim=replace(optim, layer_decay=1.0)), "even")
    decayed = moved(replace(SMALL, optim=optim), "decayed")
    for name, layers_after in (("layer2.1.bn2.weight", 0), ("layer1.1.bn2.weight", 2), ("conv1.weight", 4)):
        assert even[name].abs().max() > 1e-5
        torch.testing.assert_close(decayed[name], even[name] * 0.5**layers_after, atol=1e-7, rtol=1e-3)


def test_a_gradient_is_no_longer_than_the_clip(tmp_path):
    optim = Optim("sgd", base_lr=1.0, lr_batch=512, momentum=0.0, weight_decay=0.0, warmup=0.0, clip=0.01)
    data = open_dataset("cifar10-mini")
    state = engine.build(engine.settle(replace(SMALL, optim=optim), data), data)
    before = torch.cat([p.detach().flatten().clone() for p in state.method.parameters()])
    clock = state.loader.clock(0)
    state.set_lr(clock)
    train_step(state.loader.source.read(state.loader.ids(0)), state, clock)
    after = torch.cat([p.detach().flatten() for p in state.method.parameters()])
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_the_schedule_that_stays_is_recorded(tmp_path):
    optim = Optim(base_lr=0.01, lr_batch=512, schedule="wsd", warmup=0.0, decay=0.5)
    run = train(tmp_path / "a", config=replace(SMALL, optim=optim))
    rates = {record["step"]: record["lr"] for record in run.metrics}
    np.testing.assert_allclose([rates[2], rates[4], rates[6], rates[8]], [0.01, 0.01, 0.01, 0.005])


@pytest.mark.parametrize("channels", [1, 5])
def test_images_of_any_number_of_channels_train(channels, tmp_path):
    images = torch.randint(0, 256, (64, channels, 32, 32), dtype=torch.uint8)
    statistics = ((0.5,) * channels, (0.25,) * channels)
    data = Dataset("arrays", Split(ArraySource(images), None), None, statistics)
    config = engine.settle(replace(SMALL, train=replace(SMALL.train, batch_size=32)), data)
    assert config.network.channels == channels
    folder = RunFolder.create(tmp_path / "run")
    engine.fit(engine.build(config, data), folder)
    assert folder.read_status()["state"] == "finished"


def overlays(name: str) -> dict[str, dict]:
    text = recipes.RECIPE_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get("methods", {})


def test_another_method_takes_its_own_options_from_a_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    config = replace(SMALL, objective=Objective("frossl", {"normalize": "rows"}))
    run = train(tmp_path / "a", config=config, method="vicreg")
    assert run.config.objective == Objective("vicreg")


def test_weights_that_do_not_fit_are_refused_before_anything_is_on_disk(tmp_path):
    first = train(tmp_path / "first")
    with pytest.raises(InputError, match="does not fit this backbone"):
        train(tmp_path / "second", weights=first.path / "encoder.safetensors", backbone="resnet34")
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(("views", "weight"), [(2, 1.4), (8, 0.2)])
def test_more_views_keep_the_balance_of_two_unless_a_weight_is_given(views, weight):
    data = open_dataset("cifar10-mini")
    config = engine.settle(SMALL, data, views=views)
    assert config.objective.options["invariance_weight"] == pytest.approx(weight)
    given = replace(SMALL, objective=Objective("frossl", {"invariance_weight": 3.0}))
    assert engine.settle(given, data, views=views).objective.options["invariance_weight"] == 3.0


def test_a_resume_names_what_changed_in_the_data(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    run = frossl.pretrain(photos, out=tmp_path / "run", config=SMALL, epochs=2, batch_size=6, quiet=True)
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    aside = (photos / "1.jpg").read_bytes()
    (photos / "1.jpg").unlink()
    (photos / "new.jpg").write_bytes(aside)
    (photos / "new too.jpg").write_bytes(aside)
    with pytest.raises(
        InputError, match=r"13 now, 12 then: 2 new, such as 'new too\.jpg'; 1 gone, such as '1"
    ):
        frossl.resume(run.path, quiet=True)
    (photos / "new.jpg").unlink()
    (photos / "new too.jpg").unlink()
    (photos / "1.jpg").write_bytes(aside + b"more")
    with pytest.raises(InputError, match="the same names, of other sizes"):
        frossl.resume(run.path, quiet=True)
    (photos / "1.jpg").write_bytes(aside)
    assert frossl.resume(run.path, quiet=True).status["state"] == "finished"
