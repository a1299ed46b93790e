"""Real runs that are asked how they go: they learn, collapse, diverge, and nothing changes by being asked."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import frossl
from frossl.config import Config, Diagnostics, Objective, Optim
from frossl.diagnostics import diagnose
from frossl.engine import build_method
from frossl.errors import BadStepError, CollapseError, InputError
from frossl.types import Callback
from tests.support.runs import SMALL, assert_same, read_lines, train, weights

EAGER = Diagnostics(every=1, share=1.0)
LOOKING = Diagnostics(every=5, share=1.0, knn=False)
BLIND = Diagnostics(every=10**9, share=0.0, probe=False, knn=False)


def longer(config: Config, epochs: int, **options) -> Config:
    """Small runs of 39 steps an epoch."""
    objective = replace(config.objective, options={**config.objective.options, **options})
    return replace(config, objective=objective, train=replace(config.train, epochs=epochs, batch_size=128))


def watched(config: Config, diagnostics: Diagnostics = EAGER) -> Config:
    return replace(config, diagnostics=diagnostics)


def seen(run: Path) -> list[dict]:
    return read_lines(run / "diagnostics.jsonl")


def test_nobody_who_asks_changes_the_run(tmp_path):
    with_all, without = (
        train(tmp_path / name, config=replace(SMALL, diagnostics=kind))
        for name, kind in (("a", EAGER), ("b", BLIND))
    )
    assert_same(weights(with_all), weights(without))
    saved, plain = (
        torch.load(sorted((run.path / "checkpoints").iterdir())[-1], weights_only=True)
        for run in (with_all, without)
    )
    assert plain["observer"] == {}
    assert saved["observer"]["probe"]["linear"]["weight"].abs().sum() > 0
    assert {"knn", "probe", "probe_views"} <= set(seen(with_all.path)[-1])
    assert not (without.path / "diagnostics.jsonl").exists()


def test_records_are_stamped_and_are_what_diagnose_says_of_the_steps_embeddings(tmp_path):
    kept = {}

    def look(ids, tensors, clock):
        kept[clock.step + 1] = {name: tensor.clone() for name, tensor in tensors.items()}

    run = train(tmp_path / "a", config=watched(SMALL), callbacks=[Callback(1, look)])
    records = [look for look in run.diagnostics if "z_rank" in look]
    assert [record["step"] for record in records] == list(range(1, 10))
    for record in records:
        expected = diagnose(kept[record["step"]])
        assert {name: record[name] for name in expected} == expected
        assert record["epoch"] == 0
    assert [r["seconds"] for r in records] == sorted(r["seconds"] for r in records)
    assert records[-1]["seconds"] <= run.metrics[-1]["seconds"] + 5
    losses = {r["step"]: r["loss"] for r in run.metrics}
    assert records[1]["mean_loss"] == pytest.approx(losses[2], rel=1e-6)
    assert 0 < records[-1]["share"] < 1


def test_an_online_probe_goes_on_as_if_the_run_had_never_stopped(tmp_path, monkeypatch):
    def probe(run: frossl.Run) -> torch.Tensor:
        newest = sorted((run.path / "checkpoints").iterdir())[-1]
        return torch.load(newest, weights_only=True)["observer"]["probe"]["linear"]["weight"]

    whole = train(tmp_path / "whole", config=watched(SMALL))
    monkeypatch.setenv("FROSSL_MAX_STEPS", "5")
    train(tmp_path / "part", config=watched(SMALL))
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    resumed = frossl.resume(tmp_path / "part", quiet=True)
    assert torch.equal(probe(whole), probe(resumed))
    assert [r["step"] for r in resumed.diagnostics] == [r["step"] for r in whole.diagnostics]
    assert [r.get("knn") for r in resumed.diagnostics] == [r.get("knn") for r in whole.diagnostics]


def test_frozen_layers_stay_frozen_while_neighbours_are_asked(tmp_path):
    start = train(tmp_path / "start")
    network = replace(SMALL.network, weights=str(start.path / "encoder.safetensors"), freeze=2)
    config = watched(replace(SMALL, network=replace(network, stem=start.config.network.stem)))
    run = train(tmp_path / "run", config=config)
    before = build_method(run.config).state_dict()
    after = weights(run)
    stem = [name for name in after if name.startswith(("backbone.conv1", "backbone.bn1"))]
    assert stem
    assert all(torch.equal(before[name], after[name]) for name in stem)


def test_flipping_the_sign_of_the_variance_is_called_collapsing(tmp_path):
    run = train(tmp_path / "a", config=watched(longer(SMALL, 1, variance_weight=-1.0), LOOKING))
    called = [record["step"] for record in seen(run.path) if record.get("verdict") == "collapsing"]
    assert called[0] <= 200
    assert run.status["verdict"]["kind"] == "collapsing"
    assert run.status["verdict"]["reason"].startswith("dimensionally")


def test_a_rate_a_hundred_times_too_high_is_called_diverging(tmp_path):
    config = replace(SMALL, optim=replace(SMALL.optim, base_lr=100 * 0.006))
    with contextlib.suppress(BadStepError):
        train(tmp_path / "a", config=watched(longer(config, 1), LOOKING))
    assert "diverging" in [record.get("verdict") for record in seen(tmp_path / "a")]
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert status["verdict"]["kind"] == "diverging"
    assert "lower rate" in status["verdict"]["advice"]


ATTRACT_ONLY = replace(
    SMALL,
    objective=Objective(
        "vicreg", {"variance_weight": 0.0, "covariance_weight": 0.0, "invariance_weight": 25.0}
    ),
    optim=Optim(base_lr=0.05, weight_decay=0.0),
)


def test_a_complete_collapse_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(CollapseError, match="all images are one point"):
        train(tmp_path / "a", config=watched(longer(ATTRACT_ONLY, 6), LOOKING))
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["verdict"]["kind"] == "collapsing"
    assert status["step"] < 6 * 39
    assert not (tmp_path / "a" / "encoder.safetensors").exists()
    kept = [int(p.stem[5:]) for p in sorted((tmp_path / "a" / "checkpoints").iterdir())]
    bad = [record["step"] for record in seen(tmp_path / "a") if record["verdict"] == "collapsing"]
    assert kept
    assert bad[0] - 8 <= kept[-1] <= bad[0]


def test_a_collapse_may_be_watched_to_its_end(tmp_path):
    config = longer(ATTRACT_ONLY, 6)
    run = train(tmp_path / "a", config=watched(config, replace(LOOKING, stop=False)))
    assert run.status["state"] == "finished"
    assert run.status["verdict"]["reason"].startswith("completely")
    assert (run.path / "checkpoints" / f"step-{6 * 39:08d}.pt").is_file()


def test_a_run_that_was_collapsing_is_so_after_a_resume_and_its_good_checkpoint_is_spared(
    tmp_path, monkeypatch
):
    config = longer(SMALL, 1, variance_weight=-1.0)
    config = replace(config, train=replace(config.train, checkpoint_every=2))
    monkeypatch.setenv("FROSSL_MAX_STEPS", "30")
    run = train(tmp_path / "a", config=watched(config, LOOKING))
    kept = [int(p.stem[5:]) for p in sorted((run.path / "checkpoints").iterdir())]
    bad = [record["step"] for record in seen(run.path) if record["verdict"] == "collapsing"]
    assert kept[0] < bad[0] < kept[1]
    assert kept[1:] == [28, 30]
    monkeypatch.setenv("FROSSL_MAX_STEPS", "31")
    resumed = frossl.resume(run.path, quiet=True)
    assert resumed.status["verdict"]["kind"] == "collapsing"


@pytest.mark.slow
def test_a_probe_beside_a_teacher_is_tested_on_what_it_learned_from(tmp_path):
    """DINO exports a teacher that hardly moves here; a probe of the student must not be asked about that."""
    config = replace(SMALL, objective=Objective("dino", {"outputs": 64, "ema": 1.0, "ema_end": 1.0}))
    run = train(tmp_path / "a", config=watched(longer(config, 2, ema=1.0)))
    last = [record for record in seen(run.path) if "probe" in record][-1]
    assert last["probe"] > 15
    state = torch.load(sorted((run.path / "checkpoints").iterdir())[-1], weights_only=True)
    assert not torch.equal(state["method"]["backbone.conv1.weight"], run.encoder().backbone.conv1.weight)


def test_checkpoints_are_measured_and_one_may_be_asked(tmp_path):
    run = train(tmp_path / "a")
    found = frossl.checkpoints(run.path)
    assert [saved.step for saved in found.saved] == [8, 9]
    by_hand = frossl.knn(run.path, step=8)
    assert found.saved[0].knn.images == by_hand.trained.images == 1000
    assert frossl.knn(run.path, step=9).trained == run.knn().trained
    assert found.best_by_labels in found.saved
    with pytest.raises(InputError, match="no checkpoint of step 3; there are 8, 9"):
        frossl.knn(run.path, step=3)


METHODS = ("frossl", "simclr", "byol")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "seed"), [("frossl", 1), ("simclr", 0), ("byol", 0)])
def test_a_normal_run_never_gets_a_false_alarm(method, seed, tmp_path):
    """One seed of each; `python -m benchmarks.verdicts` has two."""
    run = train(tmp_path / "run", config=_as_in_the_demo(method, epochs=10), seed=seed)
    verdicts = [record["verdict"] for record in seen(run.path) if "verdict" in record]
    assert set(verdicts) <= {"warming up", "learning"}
    assert verdicts[-1] == "learning"


def _as_in_the_demo(method: str, *, epochs: int, **options) -> Config:
    """The recipe `default` for a method, on the network and views of the demo."""
    config, demo = frossl.recipe("default", method=method), frossl.recipe("demo")
    network = replace(config.network, stages=demo.network.stages, stem=demo.network.stem)
    objective = replace(config.objective, options={**config.objective.options, **options})
    train = replace(config.train, epochs=epochs)
    return replace(config, network=network, objective=objective, train=train, views=demo.views)


@pytest.mark.slow
def test_a_real_frossl_run_with_the_sign_flipped_is_called_collapsing_within_200_steps(tmp_path):
    run = train(tmp_path / "run", config=_as_in_the_demo("frossl", epochs=5, variance_weight=-1.0))
    called = [record["step"] for record in seen(run.path) if record.get("verdict") == "collapsing"]
    assert called[0] <= 200


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_real_run_at_a_hundred_times_the_rate_is_called_diverging(method, tmp_path):
    config = _as_in_the_demo(method, epochs=3)
    config = replace(config, optim=replace(config.optim, base_lr=100 * config.optim.base_lr))
    with contextlib.suppress(BadStepError):
        train(tmp_path / "run", config=config)
    assert "diverging" in [record.get("verdict") for record in seen(tmp_path / "run")]
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["verdict"]["kind"] == "diverging"
