"""The command line as its users meet it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from frossl.config import Config
from frossl.exporting.formats import FORMATS
from frossl.runs import provenance
from tests.support.cli import FROSSL, call
from tests.support.images import write_image

VERBS = (
    "demo", "pretrain", "resume", "knn", "probe", "finetune", "checkpoints", "spectrum", "compare", "report",
    "watch", "pack", "check", "views", "list", "recipe", "doctor", "embed", "export",
)  # fmt: skip


def test_help_imports_nothing_heavy():
    done = subprocess.run([*FROSSL, "--help"], capture_output=True, text=True, check=True)
    for verb in VERBS:
        assert verb in done.stdout
    code = (
        "import sys; from frossl.cli import app; app(['--help'], standalone_mode=False);"
        "app(['export', '--help'], standalone_mode=False);"
        "sys.exit(str({'torch', 'timm', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb, monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, verb, "--help")
    assert code == 0
    assert "Usage" in out
    assert f"frossl {verb}" in out.partition("Example: ")[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pretrain", "missing/folder"], "there is no folder"),
        (["pretrain", "empty"], "there are no images in"),
        (["pretrain", "one"], "holds one image"),
        (["pretrain", "photos", "--views", "1"], "views = 1"),
        (["pretrain", "photos", "--views", "0"], "views = 0"),
        (["pretrain", "cifar10-minni"], "did you mean cifar10-mini"),
        (["pretrain", "photos", "--backbone", "swin_tiny_patch4_window7_224"], "does not take images of"),
        (["pretrain", "photos", "--method", "frosl"], "did you mean frossl"),
        (["pretrain", "photos", "--backbone", "resnet81"], "did you mean resnet18"),
        (["pretrain", "photos", "--view-set", "symetric"], "did you mean symmetric"),
        (["pretrain", "photos", "--width", "-1"], "network.width"),
        (["pretrain", "photos", "--batch-size", "1"], "train.batch_size"),
        (["pretrain", "photos", "--epochs", "0"], "train.epochs"),
        (["pretrain", "photos", "--lr", "0"], "optim.base_lr"),
        (["pretrain", "photos", "--out", "run"], "frossl resume"),
        (["pretrain", "photos", "--recipe", "dmo"], "did you mean demo"),
        (["pretrain", "photos", "--config", "nothing.toml"], "no file nothing.toml"),
        (["resume", "missing"], "no run at missing"),
        (["knn", "empty"], "holds no run"),
        (["probe", "missing"], "no run at missing"),
        (["spectrum", "empty"], "holds no run"),
        (["compare", "missing", "empty"], "no run at missing"),
        (["list", "metods"], "did you mean methods"),
        (["pretrain", ""], "no data given"),
        (["pretrain", "photos", "--views", "1000000"], "views.count"),
        (["pretrain", "photos", "--config", "photos/1.jpg"], "not a text file"),
        (["pretrain", "photos", "--config", "odd.toml"], "did you mean normalize"),
    ],
)
def test_bad_input_is_one_line_with_a_hint_and_exit_code_2(
    arguments, words, photos, tmp_path, monkeypatch, capsys
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.png").write_bytes((photos / "trip" / "0.png").read_bytes())
    (tmp_path / "odd.toml").write_text("[objective.options]\nnormalise = 'rows'\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    mark = provenance(seed=0, index_digest="", images=1)
    (tmp_path / "run" / "provenance.json").write_text(json.dumps(mark))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("frossl: ")
    assert err.count("\n") == 1
    assert words in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arguments", [["pretrain"], ["fly"], ["knn", "run", "--k", "many"]])
def test_usage_errors_exit_with_2_and_no_traceback(arguments, monkeypatch, capsys):
    code, _, err = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "Traceback" not in err
    assert "Usage" in err


def test_pretrain_needs_nothing_but_a_folder_and_knn_nothing_but_a_run(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    code, out, err = call(monkeypatch, capsys, "pretrain", photos, "--out", tmp_path / "run")
    assert code == 0, err
    assert f"run folder: {tmp_path / 'run'}" in out
    assert "12 images" in err
    code, out, err = call(monkeypatch, capsys, "pretrain", photos, "--out", tmp_path / "run", "--overwrite")
    assert code == 0, err
    assert "stopped at step 2 of 100 by FROSSL_MAX_STEPS" in out
    code, out, err = call(monkeypatch, capsys, "knn", tmp_path / "run")
    assert code == 2
    assert "no labels" in err


def test_a_small_labelled_folder_with_odd_names_goes_all_the_way(tmp_path):
    folder = tmp_path / os.fsdecode(b"odd \xff [b] name")
    for i in range(10):
        write_image(folder / "ab"[i % 2] / f"{i} 'x'.jpg", width=40, height=40, seed=i)
    run = tmp_path / os.fsdecode(b"run \xff")

    def frossl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "FROSSL_MAX_STEPS": "2"}
        return subprocess.run(
            [*FROSSL, *arguments], capture_output=True, text=True, env=environment, check=False
        )

    done = frossl("pretrain", folder, "--out", run)
    assert done.returncode == 0, done.stderr
    assert "[b]" in done.stderr
    done = frossl("knn", run)
    assert done.returncode == 0, done.stderr
    assert "kNN, k 8" in done.stdout
    (run / "status.json").write_text("{")
    done = frossl("resume", run)
    assert done.returncode == 2
    assert "status.json is damaged" in done.stderr


@pytest.mark.slow
def test_json_is_the_last_line_of_standard_output(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    code, out, err = call(monkeypatch, capsys, "demo", "--out", tmp_path / "run", "--json", "--quiet")
    assert code == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["run"] == str(tmp_path / "run")
    assert result["seconds"] > 0
    for protocol in ("knn", "probe10"):
        assert set(result[protocol]) == {"pixels", "colors", "untrained", "trained"}
        assert all(0 < percent < 100 for percent in result[protocol].values())
    code, out, _ = call(monkeypatch, capsys, "knn", tmp_path / "run", "--json")
    assert json.loads(out.splitlines()[-1])["knn"]["percent"] == result["knn"]


def test_check_says_what_it_found(tmp_path, monkeypatch, capsys):
    for part, seeds in (("train", range(12)), ("val", range(11, 14))):
        for seed in seeds:
            write_image(
                tmp_path / "data" / part / "ab"[seed % 2] / f"{seed}.png", width=9, height=9, seed=seed
            )
    for i in range(12):
        (tmp_path / "data" / "train" / "a" / f"<bad>\n{i}.jpg").write_bytes(b"")
    code, out, _ = call(monkeypatch, capsys, "check", tmp_path / "data", "--quiet")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "24 images, 3 test images, 2 classes; 9 px"
    assert lines[1] == "12 cannot be read"
    assert lines[12] == "  and 2 more (--json lists all)"
    assert lines[13:] == [
        "0 are exact copies of another image",
        "1 test images are copies of training images",
        "  'b/11.png' = 'b/11.png'",
    ]
    _, out, _ = call(monkeypatch, capsys, "check", tmp_path / "data", "--quiet", "--json")
    found = json.loads(out)
    assert len(found["bad_files"]) == 12
    assert found["crossing"] == [["b/11.png", "b/11.png"]]


def test_list_prints_names(monkeypatch, capsys):
    _, out, _ = call(monkeypatch, capsys, "list")
    for words in ("methods: barlow", "cifar10-mini", "symmetric", "demo"):
        assert words in out
    _, out, _ = call(monkeypatch, capsys, "list", "formats")
    assert [line.split()[0] for line in out.splitlines()] == list(FORMATS)
    _, out, _ = call(monkeypatch, capsys, "list", "backbones", "--like", "resnet18")
    assert "resnet18" in out.splitlines()
    assert all("resnet18" in line for line in out.splitlines())


def test_a_recipe_is_printed_as_it_stands_and_starts_a_run(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    _, out, _ = call(monkeypatch, capsys, "recipe", "default")
    (tmp_path / "mine.toml").write_text(out)
    arguments = ["--config", tmp_path / "mine.toml", "--set", "network.width=0.25", "--set", "optim.clip=3"]
    code, _, err = call(monkeypatch, capsys, "pretrain", photos, "--out", tmp_path / "run", *arguments)
    assert code == 0, err
    settled = Config.read(tmp_path / "run" / "config.toml")
    assert (settled.network.width, settled.optim.clip, settled.optim.base_lr) == (0.25, 3.0, 0.006)
    code, _, err = call(monkeypatch, capsys, "recipe", "defualt")
    assert (code, "did you mean default" in err) == (2, True)
    _, out, _ = call(monkeypatch, capsys, "list", "runs", "--under", tmp_path)
    assert out.startswith(f"{tmp_path / 'run'}  stopped, step 1 of 100")
    _, out, _ = call(monkeypatch, capsys, "list", "runs", "--under", tmp_path, "--json")
    assert set(json.loads(out)["runs"]) == {str(tmp_path / "run")}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("frossl pre", {"pretrain"}),
        ("frossl list re", {"recipes"}),
        ("frossl recipe dem", {"demo"}),
        ("frossl export run --format to", {name for name in FORMATS if name.startswith("to")}),
    ],
)
def test_a_shell_can_complete_commands_and_names(words, offered):
    environment = {
        **os.environ,
        "_FROSSL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    frossl = Path(sys.executable).with_name("frossl")
    done = subprocess.run([frossl], capture_output=True, text=True, env=environment, check=False)
    assert set(done.stdout.split()) == offered, done.stderr


def test_importing_the_verbs_imports_little_besides_torch_and_timm():
    slow = "{'sklearn', 'scipy', 'matplotlib', 'pandas', 'pyarrow', 'datasets', 'numba', 'onnx', 'mlflow'}"
    code = f"import sys, frossl; frossl.pretrain, frossl.knn, frossl.report; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_version(monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, "--version")
    assert code == 0
    assert out.startswith("frossl 0.")


def test_ctrl_c_before_training_is_one_line():
    process = subprocess.Popen(
        [*FROSSL, "pretrain", "cifar10-mini", "--out", "never"], stderr=subprocess.PIPE, text=True
    )
    time.sleep(1.0)  # in the middle of importing torch
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == "frossl: interrupted"


def wait_for(condition, *, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_ends_a_run_cleanly_and_resume_goes_on(number, tmp_path):
    run = tmp_path / "run"
    command = [*FROSSL, "pretrain", "cifar10-mini", "--out", run, "--width", "0.25", "--batch-size", "32"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (run / "metrics.jsonl").is_file())
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"frossl resume {run}" in out
    assert "Traceback" not in err
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("stopped", number.name)
    assert (run / "checkpoints" / f"step-{status['step']:08d}.pt").is_file()
    assert (run / "encoder.safetensors").is_file()
    steps = str(status["step"] + 1)
    done = subprocess.run(
        [*FROSSL, "resume", run],
        capture_output=True, text=True, env={**os.environ, "FROSSL_MAX_STEPS": steps}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"continuing from step {status['step']}" in done.stderr
    assert json.loads((run / "status.json").read_text())["step"] == int(steps)


def test_a_reader_that_leaves_early_is_no_traceback():
    command = f"{sys.executable} -m frossl list backbones | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_reader_that_leaves_early_does_not_end_a_run(tmp_path):
    run = tmp_path / "run"
    command = f"{sys.executable} -m frossl pretrain cifar10-mini --recipe demo --out {run} 2>&1 | head -n 1"
    environment = {**os.environ, "FROSSL_MAX_STEPS": "11"}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.count("\n") == 1
    status = json.loads((run / "status.json").read_text())
    assert (status["step"], status["reason"]) == (11, "FROSSL_MAX_STEPS")
    assert (run / "encoder.safetensors").is_file()
