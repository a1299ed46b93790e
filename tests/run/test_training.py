"""Whole runs: repeatable, resumable, without labels, honest about failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from frossl import api
from frossl.config import Config, Data, Network, Optim, Train, ViewSpec
from frossl.errors import InputError, TrainingError

SMALL = Config(
    data=Data("cifar10-mini"),
    network=Network(
        "resnet18", width=0.125, stages=2, projector_hidden=32, projector_out=16, projector_layers=2
    ),
    optim=Optim(base_lr=0.01),
    train=Train(epochs=1, batch_size=512, log_every=2, checkpoint_every=4),
    views=(ViewSpec(size=16, count=2),),
)


def weights(run: Path | api.Run) -> dict[str, torch.Tensor]:
    path = run.path if isinstance(run, api.Run) else run
    newest = sorted((path / "checkpoints").iterdir())[-1]
    return torch.load(newest, weights_only=True)["method"]


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


def train(out: Path, *, config: Config = SMALL, data: str = "cifar10-mini", **options) -> api.Run:
    return api.pretrain(data, out=out, config=config, quiet=True, **options)


def test_one_seed_gives_identical_weights_and_another_does_not(tmp_path):
    first, second, other = (train(tmp_path / name, seed=s) for name, s in (("a", 3), ("b", 3), ("c", 4)))
    assert_same(weights(first), weights(second))
    assert any(
        not torch.equal(x, y) for x, y in zip(weights(first).values(), weights(other).values(), strict=True)
    )
    assert first.status == {"state": "finished", "step": 9, "total": 9, "reason": ""}


def test_the_written_configuration_repeats_the_run(tmp_path):
    first = train(tmp_path / "a")
    again = train(tmp_path / "b", config=Config.read(tmp_path / "a" / "config.toml"))
    assert_same(weights(first), weights(again))
    assert (tmp_path / "a" / "config.toml").read_text() == (tmp_path / "b" / "config.toml").read_text()


def test_a_stopped_run_continues_as_if_it_had_never_stopped(tmp_path, monkeypatch):
    whole = train(tmp_path / "whole")
    monkeypatch.setenv("FROSSL_MAX_STEPS", "5")
    part = train(tmp_path / "part")
    assert part.status["state"] == "stopped"
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    resumed = api.resume(tmp_path / "part", quiet=True)
    assert resumed.status["state"] == "finished"
    assert_same(weights(whole), weights(resumed))
    numbers = ("step", "epoch", "lr", "loss", "invariance", "variance", "effective_rank")
    for a, b in zip(whole.metrics, resumed.metrics, strict=True):
        assert {n: a[n] for n in numbers} == {n: b[n] for n in numbers}


def test_the_record_shows_a_rank_within_its_bounds_and_parts_that_sum(tmp_path):
    for record in train(tmp_path / "a").metrics:
        assert 1 <= record["effective_rank"] <= 16
        assert record["loss"] == pytest.approx(record["invariance"] + record["variance"], rel=1e-5)


def test_only_the_newest_checkpoints_are_kept_and_nothing_half_written(tmp_path):
    train(tmp_path / "a")
    assert sorted(p.name for p in (tmp_path / "a" / "checkpoints").iterdir()) == [
        "step-00000008.pt", "step-00000009.pt",
    ]  # fmt: skip


def test_a_folder_of_mixed_images_works_without_labels(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    (photos / "9.jpg").write_bytes(b"broken")
    run = api.pretrain(photos, out=tmp_path / "run", quiet=True)
    assert run.status["step"] == 2
    assert "9.jpg" in (tmp_path / "run" / "bad_files.txt").read_text()
    assert Path(run.config.data.source).is_absolute()
    with pytest.raises(InputError, match="no labels"):
        run.knn()
    encoder = run.encoder()
    assert encoder(torch.randint(0, 256, (2, 3, 50, 80), dtype=torch.uint8)).shape == (
        2,
        encoder.num_features,
    )
    assert not encoder.training


def test_the_saved_encoder_is_the_trained_one(tmp_path):
    run = train(tmp_path / "a")
    saved = {f"backbone.{k}": v for k, v in run.encoder().backbone.state_dict().items()}
    trained = weights(run)
    assert_same(saved, {name: trained[name] for name in saved})


def test_knn_tells_the_three_rows_apart_and_keeps_them(tmp_path):
    run = train(tmp_path / "a")
    result = run.knn()
    assert result.pixels.percent == pytest.approx(37.1, abs=0.05)  # a figure that only the data decides
    assert result.untrained != result.trained
    kept = [json.loads(line) for line in (tmp_path / "a" / "evaluation.jsonl").read_text().splitlines()]
    assert kept[-1]["percent"] == result.percents()
    assert kept[-1]["images"] == 1000


def test_resuming_on_other_images_is_refused(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    api.pretrain(photos, out=tmp_path / "run", quiet=True)
    (photos / "0001.jpg").write_bytes((photos / "1.jpg").read_bytes())
    with pytest.raises(InputError, match="13 now, 12 then"):
        api.resume(tmp_path / "run", quiet=True)


def test_a_damaged_checkpoint_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    train(tmp_path / "a")
    newest = sorted((tmp_path / "a" / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.raises(InputError, match=f"{newest.name} cannot be read"):
        api.resume(tmp_path / "a", quiet=True)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_update(tmp_path):
    config = Config(
        data=SMALL.data,
        network=SMALL.network,
        optim=Optim(base_lr=1e30, warmup=0.0),
        train=SMALL.train,
        views=SMALL.views,
    )
    with pytest.raises(TrainingError, match=r"not finite at step \d"):
        train(tmp_path / "a", config=config)
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert status["state"] == "failed"
    assert "not finite" in status["reason"]


def test_lars_and_four_views_of_two_sizes_train(tmp_path):
    config = Config(
        data=SMALL.data,
        network=SMALL.network,
        optim=Optim("lars", base_lr=0.3),
        train=SMALL.train,
        views=(ViewSpec(size=16, count=2), ViewSpec(size=12, count=2, scale=(0.1, 0.5))),
    )
    run = train(tmp_path / "a", config=config)
    losses = [record["loss"] for record in run.metrics]
    assert losses[-1] < losses[0]
