"""Whole runs: repeatable, resumable, without labels, honest about failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import frossl
from frossl.augment import Augment
from frossl.config import Config, Optim, ViewSpec
from frossl.engine import build_method
from frossl.errors import InputError, TrainingError
from frossl.methods import Method
from frossl.runs.records import FORMAT
from tests.support.runs import SMALL, USUAL, assert_same, read_lines, train, weights


def test_one_seed_gives_identical_weights_and_another_does_not(tmp_path):
    first, second, other = (train(tmp_path / name, seed=s) for name, s in (("a", 3), ("b", 3), ("c", 4)))
    assert_same(weights(first), weights(second))
    assert any(
        not torch.equal(x, y) for x, y in zip(weights(first).values(), weights(other).values(), strict=True)
    )
    status = first.status
    assert status.pop("verdict")["reason"].startswith("kNN is right on ")
    known = {"state": "finished", "step": 9, "total": 9, "reason": "", "closed": True}
    assert status == {"format": FORMAT, **known}


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
    resumed = frossl.resume(tmp_path / "part", quiet=True)
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
    run = frossl.pretrain(photos, out=tmp_path / "run", quiet=True)
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
    kept = read_lines(tmp_path / "a" / "evaluation.jsonl")
    assert kept[-1]["percent"] == result.percents()
    assert kept[-1]["images"] == 1000


def test_resuming_on_other_images_is_refused(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    frossl.pretrain(photos, out=tmp_path / "run", quiet=True)
    (photos / "0001.jpg").write_bytes((photos / "1.jpg").read_bytes())
    with pytest.raises(InputError, match="13 now, 12 then"):
        frossl.resume(tmp_path / "run", quiet=True)


def test_a_damaged_checkpoint_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    train(tmp_path / "a")
    newest = sorted((tmp_path / "a" / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.raises(InputError, match=f"{newest.name} cannot be read"):
        frossl.resume(tmp_path / "a", quiet=True)


def test_a_step_that_is_not_finite_stops_the_run_and_changes_no_weight(tmp_path, monkeypatch):
    poisoned = 6
    augment = Augment.__call__

    def with_poison(self, batch, clock):
        views = augment(self, batch, clock)
        return [view * float("inf") for view in views] if clock.step == poisoned else views

    monkeypatch.setattr(Augment, "__call__", with_poison)
    kept = {}
    step = torch.optim.AdamW.step

    def watched(self, *arguments, **options):
        done = step(self, *arguments, **options)
        kept["weights"] = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        kept["steps"] = kept.get("steps", 0) + 1
        return done

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    with pytest.raises(TrainingError, match=f"step {poisoned} is not finite"):
        train(tmp_path / "a")
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert (status["state"], status["step"]) == ("failed", poisoned)
    assert "not finite" in status["reason"]
    assert kept["steps"] == poisoned
    assert all(w.isfinite().all() for w in kept["weights"])
    assert sorted(p.name for p in (tmp_path / "a" / "checkpoints").iterdir()) == [
        "step-00000004.pt", f"step-{poisoned:08d}.pt",
    ]  # fmt: skip


def test_mixed_precision_runs_the_network_in_bf16_and_the_loss_in_float32(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    seen = {}
    project, loss = Method.project, Method.loss

    def watched_project(self, views):
        self.backbone.conv1.register_forward_hook(lambda m, given, out: seen.update(conv=out.dtype))
        return project(self, views)

    def watched_loss(self, gathered, clock):
        terms = loss(self, gathered, clock)
        seen.update(z=gathered["z"].dtype, loss=terms.total.dtype)
        return terms

    monkeypatch.setattr(Method, "project", watched_project)
    monkeypatch.setattr(Method, "loss", watched_loss)
    train(tmp_path / "a", config=replace(SMALL, train=replace(SMALL.train, precision="bf16-mixed")))
    assert seen == {"conv": torch.bfloat16, "z": torch.float32, "loss": torch.float32}


def test_lars_and_views_of_two_sizes_move_every_weight(tmp_path):
    config = replace(
        SMALL,
        optim=Optim("lars", base_lr=0.3),
        views=(
            ViewSpec(size=16, count=2, **USUAL),
            ViewSpec(size=12, count=2, scale=(0.1, 0.5), **USUAL),
        ),
    )
    run = train(tmp_path / "a", config=config)
    before = build_method(run.config).state_dict()
    after = weights(run)
    still = [
        name for name in after if after[name].is_floating_point() and torch.equal(after[name], before[name])
    ]
    assert still == []


def test_training_leaves_the_callers_random_numbers_alone(tmp_path):
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    train(tmp_path / "a")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("backbone", ["efficientnet_b0", "vit_tiny_patch16_224", "convnext_atto"])
def test_any_family_of_backbones_trains_from_the_default_recipe(backbone, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    run = frossl.pretrain(photos, out=tmp_path / "run", backbone=backbone, quiet=True)
    encoder = run.encoder()
    assert encoder(torch.zeros(1, 3, 55, 55)).shape == (1, encoder.num_features)


def test_views_of_a_configuration_keep_their_kind_when_their_number_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    run = train(tmp_path / "a", views=5)
    assert run.config.views == (replace(SMALL.views[0], count=5),)


def test_a_run_killed_before_its_first_checkpoint_starts_over_cleanly(tmp_path, monkeypatch):
    whole = train(tmp_path / "whole")
    monkeypatch.setenv("FROSSL_MAX_STEPS", "3")
    train(tmp_path / "part")
    for file in (tmp_path / "part" / "checkpoints").iterdir():
        file.unlink()
    for name in ("status.json", "encoder.safetensors"):
        (tmp_path / "part" / name).unlink()
    with (tmp_path / "part" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    resumed = frossl.resume(tmp_path / "part", quiet=True)
    assert_same(weights(whole), weights(resumed))
    assert [r["step"] for r in resumed.metrics] == [r["step"] for r in whole.metrics]


def test_a_finished_run_without_its_encoder_gets_it_on_resume(tmp_path):
    run = train(tmp_path / "a")
    (tmp_path / "a" / "encoder.safetensors").unlink()
    frossl.resume(tmp_path / "a", quiet=True)
    assert_same({f"backbone.{k}": v for k, v in run.encoder().backbone.state_dict().items()}, {
        k: v for k, v in weights(run).items() if k.startswith("backbone.")
    })  # fmt: skip


@pytest.mark.slow
def test_the_demo_beats_raw_pixels_and_the_untrained_network(tmp_path):
    result = frossl.demo(out=tmp_path / "demo", quiet=True)
    for name in ("knn", "probe10"):
        row = result.comparisons[name]
        for other in (row.pixels, row.untrained):
            assert row.trained.percent > other.percent + 2 * (row.trained.deviation + other.deviation)
