"""What version 0.1.0 wrote is read, continued and finished; its names work, with a warning.

tests/fixtures/v0.1.0 holds a packed data set, a run that was stopped at step 6 of 12, and the export of the
same run when it had finished.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import frossl
from frossl.config import Config
from tests.support import ROOT
from tests.support.runs import read_lines

FIXTURES = ROOT / "tests" / "fixtures" / "v0.1.0"


@pytest.fixture
def place(tmp_path) -> Path:
    """A copy whose run names the copy of its data."""
    place = Path(shutil.copytree(FIXTURES, tmp_path / "v0.1.0"))
    for name in ("config.toml", "evaluation.jsonl"):
        file = place / "run" / name
        file.write_text(file.read_text().replace("PLACE", place.as_posix()))
    return place


@pytest.mark.parametrize("name", ["run", "exported"])
def test_its_encoders_load(name, place):
    encoder = frossl.load_encoder(place / name)
    features = encoder(torch.zeros(2, 3, 16, 16, dtype=torch.uint8))
    assert features.shape == (2, encoder.num_features)
    assert features.isfinite().all()


def test_its_run_is_evaluated_as_before(place):
    (before,) = read_lines(place / "run" / "evaluation.jsonl")
    found = frossl.knn(place / "run")
    assert found.protocol == before["protocol"]
    assert {name: round(score.percent, 2) for name, score in found.scores.items()} == before["percent"]
    assert len(read_lines(place / "run" / "evaluation.jsonl")) == 2


def test_its_run_is_resumed_and_ends_with_the_weights_that_it_had_then(place):
    run = frossl.resume(place / "run", quiet=True)
    assert (run.status["state"], run.status["step"], run.status["total"]) == ("finished", 12, 12)
    assert [record["step"] for record in run.metrics] == list(range(1, 13))
    then, now = (load_file(place / name / "encoder.safetensors") for name in ("exported", "run"))
    assert then.keys() == now.keys()
    for key, value in then.items():
        torch.testing.assert_close(now[key], value, rtol=1e-5, atol=1e-5)


def test_its_run_is_reported_and_compared(place):
    page = frossl.report(place / "run", out=place / "report.html")
    assert "frossl" in page.read_text(encoding="utf-8")
    shutil.copytree(place / "run", place / "copy")
    compared = frossl.compare([place / "run", place / "copy"], out=place / "comparison.png")
    assert compared
    assert (place / "comparison.png").is_file()


def test_its_configuration_and_its_packed_data_make_a_run(place):
    config = Config.read(place / "run" / "config.toml")
    run = frossl.pretrain(place / "packed", out=place / "again", config=config, quiet=True)
    assert run.status["state"] == "finished"
    first, second = (read_lines(place / name / "metrics.jsonl")[0] for name in ("run", "again"))
    assert second["loss"] == pytest.approx(first["loss"], abs=1e-5)


# names


def test_a_watch_is_a_callback():
    with pytest.warns(DeprecationWarning, match=r"frossl\.Callback"):
        watch = frossl.Watch(every=3, look=lambda ids, tensors, clock: None)
    assert isinstance(watch, frossl.Callback)
    assert watch.every == 3


def test_watches_are_callbacks(place):
    seen = []
    with pytest.warns(DeprecationWarning, match=r"frossl\.Callback"):
        watch = frossl.Watch(every=1, look=lambda ids, tensors, clock: seen.append(clock.step))
    with pytest.warns(DeprecationWarning, match="callbacks="):
        frossl.resume(place / "run", quiet=True, watches=[watch])
    assert seen == list(range(6, 12))


def test_joint_embedding_is_method():
    sys.modules.pop("frossl.methods.joint", None)
    with pytest.warns(DeprecationWarning, match=r"frossl\.methods\.base"):
        joint = importlib.import_module("frossl.methods.joint")
    assert joint.JointEmbedding is frossl.methods.Method


API = [
    "Checkpoints", "Choices", "Comparison", "Demo", "Embedded", "Examination", "Plan", "Run", "Where",
    "check", "checkpoints", "compare", "demo", "doctor", "embed", "export", "finetune", "knn", "linear",
    "load_encoder", "measure", "names", "pack", "plan", "pretrain", "probe", "recipe", "recipe_text",
    "recipes", "replay", "report", "resume", "runs", "spectrum", "views", "watch",
]  # fmt: skip
"""Public names of frossl.api in 0.1.0."""


@pytest.mark.parametrize("name", API)
def test_names_of_api_are_public_names(name):
    api = importlib.import_module("frossl.api")
    new = api.RENAMED.get(name, name)
    home = importlib.import_module("frossl.recipes") if new in ("recipes", "recipe_text") else frossl
    with pytest.warns(DeprecationWarning, match=rf"{home.__name__}\.{new}$"):
        found = getattr(api, name)
    assert found is getattr(home, new)


def test_api_has_no_other_names():
    api = importlib.import_module("frossl.api")
    assert api.RENAMED.keys() <= set(API)
    with pytest.raises(AttributeError, match="pretrian"):
        api.pretrian  # noqa: B018
