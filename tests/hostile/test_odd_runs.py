"""Runs on small and odd data, with odd numbers and odd names: they end well, or are refused in one line."""

from __future__ import annotations

import json
import re
import shlex
import threading
from pathlib import Path

import numpy as np
import pytest

import frossl
from tests.support.cli import call
from tests.support.images import write_image

TINY = {"network.projector_hidden": 16, "network.projector_out": 16, "network.stages": 2}
TINY_OPTIONS = [f"--set={name}={value}" for name, value in TINY.items()]


def write_classes(folder: Path, images: int, *, classes: int = 2) -> Path:
    for i in range(images):
        write_image(folder / f"class {i % classes}" / f"{i}.png", width=16, height=16, seed=i)
    return folder


def write_unreadable(folder: Path, files: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(files):
        (folder / f"unreadable {i}.png").write_bytes(b"no image")


def pretrain(data: Path, out: Path, **arguments) -> frossl.Run:
    arguments = {"width": 0.125, "epochs": 1, "batch_size": 8, "settings": TINY, "quiet": True} | arguments
    return frossl.pretrain(data, out=out, **arguments)


# small and odd data


def test_a_few_images_and_one_unreadable_file_are_measured_with_the_neighbours_that_there_are(tmp_path):
    write_unreadable(write_classes(tmp_path / "photos", 20) / "class 0", 1)
    run = pretrain(tmp_path / "photos", tmp_path / "run")
    assert run.status["state"] == "finished"
    assert (run.path / "report.html").is_file()
    (record,) = run.evaluation
    neighbours = int(re.fullmatch(r"kNN, k (\d+), brief", record["protocol"])[1])
    assert neighbours + record["images"] == 20  # readable ones: to vote, and to be tested on


def only_the_test_part_is_unreadable(folder: Path) -> None:
    write_classes(folder / "train", 12)
    for name in ("class 0", "class 1"):
        write_unreadable(folder / "test" / name, 2)


def one_class_is_readable(folder: Path) -> None:
    write_classes(folder / "train", 6, classes=1)
    write_unreadable(folder / "train" / "class 1", 5)
    write_classes(folder / "test", 4)


def one_image_is_readable(folder: Path) -> None:
    write_classes(folder, 1)
    write_unreadable(folder / "class 1", 5)
    write_unreadable(folder / "class 0", 4)


@pytest.mark.parametrize(
    "write", [only_the_test_part_is_unreadable, one_class_is_readable, one_image_is_readable]
)
def test_a_run_whose_accuracy_cannot_be_measured_ends_well_and_says_so(write, tmp_path):
    write(tmp_path / "photos")
    run = pretrain(tmp_path / "photos", tmp_path / "run")
    assert run.status["state"] == "finished"
    assert run.evaluation == []
    assert run.status["verdict"]["accuracy"].startswith("accuracy not measured: ")
    assert (run.path / "report.html").is_file()


# budgets


def test_a_budget_that_is_too_short_is_answered_with_one_that_works(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), np.uint8))
    arguments = ["pretrain", tmp_path / "images.npy", "--width", "0.125", "--batch-size", "4", *TINY_OPTIONS]
    for more in ([], ["--dry-run"]):
        code, _, err = call(
            monkeypatch, capsys, *arguments, *more, "--out", tmp_path / "run", "--budget", "1s"
        )
        assert (code, err.count("\n")) == (2, 1), err
        assert "a budget of 1 s" in err
        assert "-" not in err.replace("--budget", "")  # no time is negative
        assert not (tmp_path / "run").exists()
    least = int(re.search(r"give at least (\d+)s", err)[1])
    code, out, err = call(monkeypatch, capsys, *arguments, "--budget", f"{2 * least}s", "--dry-run", "--json")
    assert code == 0, err
    assert json.loads(out)["steps"] >= 1


@pytest.mark.parametrize("budget", ["999999999999h", 1e300, float("nan"), float("inf"), 0, -3.0])
def test_a_budget_that_is_no_time_is_refused(budget, tmp_path):
    with pytest.raises(frossl.FrosslError, match="give such as 90s, 30m or 2h"):
        frossl.pretrain("cifar10-mini", out=tmp_path / "run", budget=budget, quiet=True)
    assert not (tmp_path / "run").exists()


# numbers at the ends of their range


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("network.projector_hidden", 10**18),
        ("network.projector_out", 2**70),
        ("network.projector_layers", 2000),
        ("optim.weight_decay", float("inf")),
        ("views", [{"size": 10**18}]),
        ("views", [{"brightness": float("inf")}]),
        ("views", [{"ratio": [1.0, float("inf")]}]),
        ("views", [{"sigma": [1.0, float("inf")]}]),
    ],
)
def test_a_number_beyond_what_can_work_is_refused_before_any_work(name, value, tmp_path):
    write_classes(tmp_path / "photos", 4)
    with pytest.raises(frossl.FrosslError, match="cannot work"):
        pretrain(tmp_path / "photos", tmp_path / "run", settings=TINY | {name: value})
    assert not (tmp_path / "run").exists()


def test_a_run_without_diagnostics_says_that_nobody_watched(tmp_path, monkeypatch, capsys):
    write_classes(tmp_path / "photos", 16)
    code, out, err = call(
        monkeypatch, capsys, "pretrain", tmp_path / "photos", "--width", "0.125", "--epochs", "2",
        "--batch-size", "8", *TINY_OPTIONS, "--set=diagnostics.share=0", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert code == 0, err
    verdict = json.loads(out.splitlines()[-1])["verdict"]
    assert verdict["training"].startswith("while training: not watched: diagnostics.share is 0")
    assert "while training: not watched" in err
    assert not (tmp_path / "run" / "diagnostics.jsonl").exists()
    assert "not watched" in (tmp_path / "run" / "report.html").read_text()
    code, out, _ = call(monkeypatch, capsys, "watch", tmp_path / "run", "--once")
    assert code == 0
    assert "not watched" in out


# names


NAMES = ("[red]x[/]", "[/]", "_ $x_", "-π[bold]")


@pytest.fixture(scope="module")
def named(tmp_path_factory) -> Path:
    """Runs whose names other programs take for something else."""
    place = tmp_path_factory.mktemp("names")
    write_classes(place / "[/photos]", 16)
    for i, name in enumerate(NAMES):
        pretrain(place / "[/photos]", place / "runs" / name, seed=0, lr=0.001 * (i + 1))
    return place


def test_names_are_literal_text_to_every_command(named, monkeypatch, capsys):
    monkeypatch.chdir(named / "runs")
    monkeypatch.setenv("COLUMNS", "300")
    names = [name for name in NAMES if not name.startswith("-")]
    for arguments, shown in [
        (["compare", *names, "--out", named / "compared.png"], names),
        (["spectrum", *names, "--out", named / "spectrum.png"], ["_ $x_"]),
        (["report", *names, "--out", named / "page.html"], []),
        (["list", "runs", "--under", "."], NAMES),
        (["knn", "_ $x_", "--against", "[/]", "--against", "[red]x[/]"], ["[/]", "[red]x[/]"]),
        (["watch", "[/]", "--once"], []),
        (["resume", "[/]"], ["[/]"]),
        (["export", "[/]"], ["[/]"]),
        (["embed", "[/]", named / "[/photos]", "--out", named / "[b]rows.npy"], ["[b]rows"]),
        (["pretrain", named / "[/photos]", "--dry-run", "--width", "0.125", *TINY_OPTIONS], ["[/photos]"]),
    ]:  # fmt: skip
        code, out, err = call(monkeypatch, capsys, *arguments)
        assert code == 0, (arguments, err)
        for name in shown:
            assert name in out + err, arguments


def test_the_command_that_goes_on_with_a_run_takes_its_name_as_it_is(named, monkeypatch, capsys):
    monkeypatch.chdir(named / "runs")
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    unlabelled = named / "flat"
    for i in range(8):
        write_image(unlabelled / f"{i}.png", width=16, height=16, seed=i)
    code, out, err = call(
        monkeypatch, capsys, "pretrain", unlabelled, "--width", "0.125", "--batch-size", "4", *TINY_OPTIONS,
        "--out=-new",
    )  # fmt: skip
    assert code == 0, err
    assert f"frossl knn {shlex.quote(str(named / 'runs' / '-new'))}" in out


# threads


def test_two_trainings_in_two_threads_learn_what_each_learns_alone(tmp_path):
    write_classes(tmp_path / "photos", 16)

    def train(name: str, seed: int) -> None:
        settings = TINY | {"network.drop_path": 0.3, "diagnostics.share": 0.0}
        pretrain(tmp_path / "photos", tmp_path / name, seed=seed, epochs=4, settings=settings)

    for seed in (1, 2):
        train(f"alone {seed}", seed)
    threads = [threading.Thread(target=train, args=(f"together {seed}", seed)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in (1, 2):
        alone, together = (
            (tmp_path / f"{how} {seed}" / "encoder.safetensors").read_bytes() for how in ("alone", "together")
        )
        assert alone == together
