"""Methods in a file of the user's, and docs/add_a_method.md, followed to the letter."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import frossl
from frossl._api.options import configure
from frossl.cli.common import starting_config
from frossl.config import Config, Objective
from frossl.errors import InputError
from tests.support import ROOT
from tests.support.cli import call_checked
from tests.support.docs import BLOCK
from tests.support.images import write_image
from tests.support.runs import SMALL, THREE_EPOCHS, assert_same, method_config, read_status, train, weights

PAGE = (ROOT / "docs" / "add_a_method.md").read_text(encoding="utf-8")
FASTSIAM = BLOCK.findall(PAGE)[0][1]
MARK = "from pathlib import Path\nPath(__file__).with_suffix('.executed').touch()\n"
"""What a file does at its top level, so that a test sees whether it was executed."""
VICREG = MARK + "from frossl.objectives import VICRegLoss\n\n\nclass Mine(VICRegLoss):\n    pass\n"
LOSS = """
from frossl.objectives.contract import Objective, objective
from frossl.types import LossTerms

@objective
def loss(z, {signature}):
    return LossTerms.of(spread=weight * z.var(0).mean())

class Mine(Objective):
    function = staticmethod(loss)
"""
READING = {
    "knn": ["knn", "RUN"],
    "knn of a checkpoint": ["knn", "RUN", "--step", "STEP"],
    "knn against": ["knn", "RUN", "--against", "RUN"],
    "probe": ["probe", "RUN", "--labels", "1"],
    "linear": ["probe", "RUN", "--paper", "--epochs", "1", "--quiet"],
    "finetune": ["finetune", "RUN", "--epochs", "1", "--quiet"],
    "checkpoints": ["checkpoints", "RUN"],
    "compare": ["compare", "RUN", "RUN2"],
    "report": ["report", "RUN"],
    "export": ["export", "RUN", "--out", "OUT"],
    "embed": ["embed", "RUN", "--out", "OUT.npy", "--quiet"],
    "spectrum": ["spectrum", "RUN", "--out", "OUT.png"],
    "watch": ["watch", "RUN", "--once"],
    "list": ["list", "runs", "--under", "RUN/.."],
    "views": ["views", "cifar10-mini", "--config", "RUN/config.toml", "--out", "OUT.png"],
}
"""Every command that reads a run."""


def executed(file: Path) -> bool:
    mark = file.with_suffix(".executed")
    was = mark.exists()
    mark.unlink(missing_ok=True)
    return was


def train_on(photos: Path, out: Path, **options) -> frossl.Run:
    return train(out, config=THREE_EPOCHS, data=str(photos), **options)


@pytest.fixture
def vicreg(tmp_path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(VICREG)
    return file


@pytest.fixture(scope="module")
def own_run(tmp_path_factory) -> Path:
    """A finished run of a method in a file, with one like it of another seed beside it."""
    place = tmp_path_factory.mktemp("own")
    for i in range(60):
        write_image(place / "photos" / "ab"[i % 2] / f"{i}.png", width=24, height=24, seed=i)
    (place / "mine.py").write_text(VICREG)
    for seed in (0, 1):
        train_on(place / "photos", place / f"run{seed}", method=f"{place}/mine.py:Mine", seed=seed)
    return place / "run0"


def test_the_page_trains_a_method_without_changing_frossl(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fastsiam.py").write_text(FASTSIAM, encoding="utf-8")
    method = Objective("fastsiam.py:FastSiam", {"predictor_hidden": 8})
    run = train(tmp_path / "run", config=replace(SMALL, objective=method))
    assert run.config.objective.method == f"{tmp_path}/fastsiam.py:FastSiam"
    assert run.config.objective.digest == hashlib.sha256(FASTSIAM.encode()).hexdigest()
    assert weights(run)["head.0.weight"].shape[0] == 8
    assert run.status["state"] == "finished"
    card, page = ((run.path / name).read_text() for name in ("model_card.md", "report.html"))
    assert "FastSiam (fastsiam.py)" in card
    assert "FastSiam (fastsiam.py)" in page
    assert str(tmp_path) not in card


def test_an_unchanged_subclass_of_a_built_in_objective_has_its_weights(own_run, tmp_path):
    built_in = train_on(own_run.parent / "photos", tmp_path / "run", method="vicreg")
    assert_same(weights(own_run), weights(built_in))
    mine, theirs = (load_file(path / "encoder.safetensors") for path in (own_run, built_in.path))
    assert_same(mine, theirs)


def test_it_resumes_bit_for_bit(own_run, vicreg, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    half = train_on(own_run.parent / "photos", tmp_path / "run", method=f"{vicreg}:Mine")
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    assert half.status["step"] == 2
    assert_same(weights(frossl.resume(half.path, quiet=True)), weights(own_run))


def test_resume_does_not_execute_a_changed_file(vicreg, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    run = train(tmp_path / "run", method=f"{vicreg}:Mine")
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    assert executed(vicreg)
    vicreg.write_text(VICREG + "# changed\n")
    for refused in (frossl.resume, lambda path, quiet: train(tmp_path / "new", config=run.config)):
        with pytest.raises(
            InputError, match=r"mine.py has changed.*put the old one back, or start a new run"
        ):
            refused(run.path, quiet=True)
    vicreg.unlink()
    with pytest.raises(InputError, match=r"mine.py cannot be read"):
        frossl.resume(run.path, quiet=True)
    vicreg.write_text(VICREG + "# changed\n")
    config = (run.path / "config.toml").read_text()
    (run.path / "config.toml").write_text(re.sub("digest = .*\n", "", config))
    with pytest.raises(InputError, match=r"without objective.digest"):
        frossl.resume(run.path, quiet=True)
    assert not executed(vicreg)
    again = train(tmp_path / "again", config=run.config, method=f"{vicreg}:Mine")
    assert again.config.objective.digest != run.config.objective.digest


@pytest.mark.parametrize("state", ["gone", "hostile"])
@pytest.mark.parametrize("command", READING.values(), ids=READING)
def test_what_reads_a_run_executes_nothing(command, state, own_run, tmp_path, monkeypatch, capsys):
    """A hostile run names a file of its sender's, with the right digest."""
    monkeypatch.chdir(tmp_path)
    for name in ("run0", "run1"):
        shutil.copytree(own_run.parent / name, tmp_path / name)
        config = tmp_path / name / "config.toml"
        text = config.read_text().replace(f"{own_run.parent}/mine.py:Mine", f"{tmp_path}/evil.py:X")
        if state == "hostile":
            text = re.sub('digest = ".*"', f'digest = "{hashlib.sha256(MARK.encode()).hexdigest()}"', text)
        config.write_text(text)
    evil = tmp_path / "evil.py"
    if state != "gone":
        evil.write_text(MARK)
    places = {"RUN2": "run1", "RUN": "run0", "OUT": "out", "STEP": str(read_status(own_run)["step"])}
    words = [reduce(lambda word, pair: word.replace(*pair), places.items(), word) for word in command]
    call_checked(monkeypatch, capsys, *words)
    frossl.load_encoder(tmp_path / "run0")
    assert not executed(evil)


def test_a_checkpoint_holds_the_encoder_of_a_teacher(tmp_path):
    """The exported network is found in a checkpoint without the class that says where it is."""
    file = tmp_path / "mine.py"
    file.write_text("from frossl.methods import METHODS\nMine = METHODS['dino']\n")
    run = train(tmp_path / "run", config=method_config("dino"), method=None)
    own = replace(run.config, objective=replace(run.config.objective, method=f"{file}:Mine"))
    mine = train(tmp_path / "mine", config=own)
    file.unlink()
    step = run.status["step"]
    assert mine.knn(k=5, step=step).percents() == mine.knn(k=5).percents() == run.knn(k=5).percents()
    assert_same(*(load_file(path / "encoder.safetensors") for path in (run.path, mine.path)))


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("def (", "Mine", r"mine.py, line 1: SyntaxError: .*; correct the file"),
        ("x = 1\nimport no_such_package", "Mine", r"mine.py, line 2: ModuleNotFoundError: .*no_such_package"),
        ("raise SystemExit(3)", "Mine", r"line 1: SystemExit: 3"),
        ("x = 1 / 0", "Mine", "line 1: ZeroDivisionError"),
        (VICREG, "Mime", "no method in .*mine.py is called 'Mime'; did you mean Mine"),
        ("Mine = 3", "Mine", r"Mine \(mine.py\) is a int; give a subclass of Method or Objective"),
        ("from frossl.methods import Method as Mine", "Mine", "names no objective; set objective_class"),
        (LOSS.format(signature="weight=1.0"), "Mine", "keyword-only options with defaults .*change weight"),
        (LOSS.format(signature="*, weight"), "Mine", "keyword-only options with defaults .*change weight"),
        (
            "from frossl.methods import Method\nfrom frossl.objectives import VICRegLoss\n"
            "class Mine(Method):\n"
            "    objective_class = VICRegLoss\n    def __init__(self, backbone): pass",
            "Mine",
            "__init__ takes backbone, projector and objective",
        ),
        (
            "from frossl.methods import Method, MethodEntry\nfrom frossl.objectives import vicreg_loss\n"
            "Mine = MethodEntry(Method, vicreg_loss)",
            "Mine",
            "no pair of a Method and an Objective",
        ),
        (
            "from frossl.methods import Method\nfrom frossl.objectives import vicreg_loss\n"
            "class Mine(Method):\n    objective_class = vicreg_loss",
            "Mine",
            "names no objective; set objective_class",
        ),
        (
            "from frossl.objectives import Objective\n"
            "class Mine(Objective):\n    function = staticmethod(lambda: 0)",
            "Mine",
            "takes z, and then",
        ),
        (LOSS.format(signature="*, weight=1.0") + "    presets = {}", "Mine", "have no 'default'; add it"),
        (
            "from frossl.methods import Method\nfrom frossl.objectives import VICRegLoss\n"
            "class Mine(Method):\n    objective_class = VICRegLoss\n    encoder_name = 'nothing'",
            "Mine",
            "Mine has no submodule 'nothing'; correct its encoder_name",
        ),
    ],
)
def test_errors_in_a_file_are_one_line(text, name, message, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        frossl.plan("cifar10-mini", method=f"{tmp_path}/mine.py:{name}")
    assert "\n" not in str(raised.value)


def test_options_are_checked_by_their_annotations(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(LOSS.format(signature="*, weight: float = 1.0"))
    for settings, message in (
        ({"objective.options.weight": "much"}, "objective.options.weight = 'much'"),
        ({"objective.options.wait": 2.0}, r"no option of Mine \(mine.py\) is called 'wait'"),
    ):
        with pytest.raises(InputError, match=message):
            frossl.plan("cifar10-mini", method=f"{file}:Mine", settings=settings)
    recipe = frossl.recipe("default", method=f"{file}:Mine")
    assert recipe == replace(frossl.recipe("default"), objective=Objective(f"{file}:Mine"))


def test_a_relative_path_names_the_method_of_a_configuration(tmp_path, monkeypatch):
    """Its options stay, as they would with the absolute path."""
    (tmp_path / "mine.py").write_text(LOSS.format(signature="*, weight: float = 1.0"))
    monkeypatch.chdir(tmp_path)
    config = Config(objective=Objective(f"{tmp_path}/mine.py:Mine", {"weight": 3.0}))
    for method in ("mine.py:Mine", f"{tmp_path}/mine.py:Mine", None):
        found = configure("cifar10-mini", {"config": config, "method": method})
        assert found.objective.options == {"weight": 3.0}
    (tmp_path / "c.toml").write_text(config.to_toml())
    start = starting_config(tmp_path / "c.toml", None, "mine.py:Mine")
    assert start is not None
    assert start.objective.options == {"weight": 3.0}


def test_the_same_file_in_another_place_is_the_same_arm(tmp_path):
    for seed, place in enumerate(("here", "there")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.py").write_text(VICREG)
        train(tmp_path / f"run{seed}", method=f"{tmp_path}/{place}/mine.py:Mine", seed=seed)
    (arm,) = frossl.compare([tmp_path / "run0", tmp_path / "run1"]).arms
    assert len(arm.runs) == 2


def test_a_checkpoint_names_the_encoder_of_a_method_that_overrides_it(tmp_path):
    text = (
        "from frossl.methods import Momentum\nfrom frossl.objectives import MoCoLoss\n"
        "class Mine(Momentum):\n    objective_class = MoCoLoss\n"
        "    @property\n    def encoder(self):\n        return self.teacher[0]\n"
    )
    (tmp_path / "mine.py").write_text(text)
    run = train(tmp_path / "run", config=method_config("moco"), method=f"{tmp_path}/mine.py:Mine")
    assert run.knn(k=5, step=run.status.step).percents() == run.knn(k=5).percents()


@pytest.mark.parametrize("named", ["method", "settings"])
def test_a_loaded_estimator_executes_no_file_that_its_folder_names(named, tmp_path, vicreg):
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
    fitted = frossl.FroSSLEncoder(epochs=1, batch_size=8, random_state=0).fit(images)
    fitted.save(tmp_path / "saved")
    stored = json.loads((tmp_path / "saved" / "params.json").read_text())
    evil = f"{vicreg}:Mine"
    stored["params"] |= {"method": evil} if named == "method" else {"settings": {"objective.method": evil}}
    (tmp_path / "saved" / "params.json").write_text(json.dumps(stored))
    with pytest.raises(InputError, match="in a file, which `fit` would execute"):
        frossl.FroSSLEncoder.load(tmp_path / "saved")
    assert not executed(vicreg)
    if named == "method":
        again = frossl.FroSSLEncoder.load(tmp_path / "saved", method=evil)
        assert np.allclose(again.transform(images), fitted.transform(images))
        assert not executed(vicreg)
        again.fit(images)
        assert executed(vicreg)


@pytest.mark.parametrize("method", ["mine.py", "no/such.py:Mine", 3, object])
def test_what_names_no_class_is_refused(method):
    with pytest.raises(InputError, match=r"; (give|put|check)"):
        frossl.plan("cifar10-mini", method=method)


def test_an_installed_package_adds_a_method(tmp_path, monkeypatch):
    (tmp_path / "their_methods.py").write_text(VICREG)
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[frossl.methods]\ntheirs = their_methods:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert frossl.list_names("methods")["methods"]["theirs"] == "from their-package 1.0"
    assert not executed(tmp_path / "their_methods.py")
    run = train(tmp_path / "run", method="theirs")
    assert executed(tmp_path / "their_methods.py")
    assert run.config.objective.digest == "their-package 1.0"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.1\n")
    with pytest.raises(InputError, match=r"theirs now comes from their-package 1.1"):
        frossl.resume(run.path, epochs=2, quiet=True)


@pytest.mark.slow
def test_the_page_adds_a_method_that_passes_the_contract(tmp_path):
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    head, networks = FASTSIAM.split("class FastSiam(Method)")
    imports, loss = head.split("@objective\n")
    only_loss = re.sub(r"from frossl\.(methods|networks).*\n", "", imports)
    of_loss = "from frossl.objectives.fastsiam import FastSiamLoss\n\n\n"
    tables = [
        ("objectives", "OBJECTIVES: dict[str, type[Objective]] = {\n"),
        ("methods", "NETWORKS: dict[str, type[Method]] = {\n"),
    ]
    files = [f"{only_loss}@objective\n{loss}", f"{imports}{of_loss}class FastSiam(Method){networks}"]
    additions = BLOCK.findall(PAGE)[-1][1].split("\n\n")
    for (folder, opening), file, addition in zip(tables, files, additions, strict=True):
        (tmp_path / f"src/frossl/{folder}/fastsiam.py").write_text(file, encoding="utf-8")
        *importing, entry = addition.rstrip().splitlines()
        registry = tmp_path / f"src/frossl/{folder}/__init__.py"
        text = registry.read_text(encoding="utf-8")
        assert opening in text
        text = text.replace(opening, "\n".join([*importing, opening + entry, ""]))
        registry.write_text(text, encoding="utf-8")

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "tests/contract/test_methods.py", "-k", "fastsiam"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    listing = [sys.executable, "-c", "from frossl.cli import main; main()", "list", "methods"]
    names = subprocess.run(listing, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "fastsiam" in names.stdout.split()
