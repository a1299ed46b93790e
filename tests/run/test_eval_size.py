"""An encoder reads images at one size, everywhere: that of its views, unless the user gives another."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import frossl
from frossl import engine
from frossl.config import Config, Network
from frossl.data import open_dataset
from frossl.evaluation import extract, labelled_split
from frossl.exporting import read_encoder
from tests.support.images import write_image


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "photos"
    for i in range(24):
        write_image(folder / "ab"[i % 2] / f"{i}.jpg", width=64, height=48, seed=i)
    return folder


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    small = {"network.width": 0.125, "network.projector_hidden": 16, "network.projector_out": 8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FROSSL_MAX_STEPS", "2")
        return frossl.pretrain(photos, out=out, quiet=True, epochs=1, batch_size=8, settings=small)


def test_the_size_is_that_of_the_largest_views_everywhere(run, photos):
    size = max(spec.size for spec in run.config.views)
    assert size != run.config.data.size == 48
    assert run.config.data.eval_size == size
    encoder, spec = read_encoder(run.path)
    assert encoder.size == spec.size == size
    assert json.loads((run.path / "preprocess.json").read_text())["size"] == size
    dataset = open_dataset(photos, size=48)
    state = engine.build(run.config, dataset)
    assert state.encoder.size == state.monitor.encoder.size == state.monitor.learner.size == size
    found = run.knn(k=3, quiet=True)
    assert f"central square at {size} px" in found.note
    assert f"central square at {size} px" in run.evaluation[-1].note


def test_a_size_of_the_users_is_taken_and_a_run_of_before_keeps_the_stored_one(run, photos):
    config = run.config.to_toml()
    assert "eval_size = 32" in config
    dataset = open_dataset(photos, size=48)
    for text, size in (
        (config.replace("eval_size = 32", "eval_size = 40"), 40),
        (config.replace("eval_size = 32\n", ""), 48),
    ):
        assert engine.build(Config.from_toml(text), dataset).encoder.size == size


def test_an_encoder_from_weights_of_a_file_reads_at_the_stored_size(photos, tmp_path):
    network = Network(weights=str(weights(tmp_path)))
    assert engine.settle(Config(network=network), open_dataset(photos, size=48)).data.eval_size == 48


def test_a_run_that_starts_from_an_encoder_of_frossl_reads_at_its_size(photos, run):
    network = {f"network.{name}": getattr(run.config.network, name) for name in ("width", "stem", "stages")}
    for given, size in ((None, 32), (40, 40)):
        data = {} if given is None else {"data.eval_size": given}
        plan = frossl.plan(
            photos, weights=run.path / "encoder.safetensors", settings={**network, **data}, epochs=1
        )
        assert plan.config.data.eval_size == size


def test_features_in_a_file_are_those_that_evaluations_see(photos, run, tmp_path):
    encoder, split = frossl.load_encoder(run.path), labelled_split(open_dataset(photos, size=48))
    for data in (None, photos):
        frossl.embed(run.path, data, out=tmp_path / "a.npy", quiet=True, overwrite=True)
        features, _ = extract(encoder, split.test)
        np.testing.assert_allclose(
            np.load(tmp_path / "a.npy")[split.test.ids], features, rtol=1e-4, atol=1e-5
        )
    mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()
    larger, _ = extract(frossl.networks.Encoder(encoder.backbone, size=48, mean=mean, std=std), split.test)
    assert (larger - features).abs().max() > 1e-3


def test_crops_that_never_show_a_whole_image_are_read_larger(photos):
    dataset = open_dataset(photos, size=48)
    patches = engine.settle(Config(view_set="patches"), dataset)
    (spec,) = patches.views
    assert patches.data.eval_size == round(spec.size / spec.scale[1] ** 0.5) > spec.size


def test_against_states_the_size_of_every_encoder(run, tmp_path):
    found = frossl.knn(run.path, k=3, against=["resnet18=" + str(weights(tmp_path))], quiet=True)
    assert "(resnet18" in found.note
    assert "224 px)" in found.note


def weights(folder):
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model("resnet18", num_classes=0).state_dict(), folder / "mine.safetensors")
    return folder / "mine.safetensors"
