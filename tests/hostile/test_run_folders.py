"""What lies on the disk stays there: run folders that are overwritten, resumed, shared, torn and starved."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import frossl
from frossl.errors import InputError, TrainingError
from tests.support.cli import FROSSL
from tests.support.images import write_image
from tests.support.runs import read_lines

TINY = {"network.projector_hidden": 16, "network.projector_out": 16, "train.log_every": 1}


def train(data: Path, out: Path | str | None, **options) -> frossl.Run:
    settings = TINY | options.pop("settings", {})
    values = {"epochs": 2, "batch_size": 8, "width": 0.125, "quiet": True, **options}
    return frossl.pretrain(data, out=out, settings=settings, **values)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Two classes of small pictures."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    for i in range(24):
        write_image(folder / "ab"[i % 2] / f"{i}.png", width=16, height=16, seed=i)
    return folder


@pytest.fixture(scope="module")
def whole(photos, tmp_path_factory) -> Path:
    return train(photos, tmp_path_factory.mktemp("runs") / "whole").path


@pytest.fixture
def run(whole, tmp_path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def stopped(photos, tmp_path, monkeypatch) -> Path:
    """A run that was stopped after 2 of 6 steps."""
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    path = train(photos, tmp_path / "stopped").path
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    return path


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, with the digest of its bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


# overwriting


@pytest.mark.parametrize("out", [".", "..", "photos", "site", "../project"])
def test_overwriting_removes_nothing_that_is_not_a_run(out, photos, tmp_path, monkeypatch):
    project = tmp_path / "project"
    shutil.copytree(photos, project / "photos")
    for name in ("config.toml", "thesis.tex", "site/config.toml", "site/index.html", "photos/config.toml"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("years of work")
    before = contents(tmp_path)
    monkeypatch.chdir(project)
    with pytest.raises(InputError, match="choose another --out"):
        train(Path("photos"), out, overwrite=True)
    with pytest.raises(InputError) as without:
        train(Path("photos"), out)
    assert "--overwrite" not in str(without.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("version", ["now", "0.1.0"])
def test_overwriting_a_run_removes_what_it_wrote_and_leaves_the_rest(version, run, photos):
    (run / "notes.md").write_text("mine")
    (run / "checkpoints" / "best.pt").write_text("mine")
    if version == "0.1.0":
        mark = json.loads((run / "provenance.json").read_text())
        mark.pop("format", None)
        (run / "provenance.json").write_text(json.dumps(mark))
    before = contents(run)
    train(photos, run, overwrite=True, epochs=1, seed=5)
    after = contents(run)
    assert (run / "notes.md").read_text() == (run / "checkpoints" / "best.pt").read_text() == "mine"
    assert before["encoder.safetensors"] != after["encoder.safetensors"]
    assert [record["step"] for record in read_lines(run / "metrics.jsonl")] == [1, 2, 3]


def test_weights_that_lie_in_the_run_that_is_overwritten_are_refused(run, photos):
    before = contents(run)
    with pytest.raises(InputError, match="which the run reads"):
        train(photos, run, overwrite=True, weights=run / "encoder.safetensors")
    assert contents(run) == before


def test_a_run_inside_its_data_is_no_data(photos, tmp_path, monkeypatch):
    data = Path(shutil.copytree(photos, tmp_path / "photos"))
    monkeypatch.chdir(data)
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    first = train(Path("."), None)
    assert first.path.is_relative_to(data)
    assert (first.path / "views.png").is_file()
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    time.sleep(0.01)
    again = frossl.resume(first.path, quiet=True)
    assert again.status["state"] == "finished"
    assert frossl.check(data).images == 24


# going on


def test_a_resume_that_is_refused_leaves_the_encoder(photos, tmp_path):
    data = Path(shutil.copytree(photos, tmp_path / "photos"))
    run = train(data, tmp_path / "run").path
    (data / "a" / "0.png").unlink()
    before = contents(run)
    with pytest.raises(InputError, match="other images"):
        frossl.resume(run, epochs=4, quiet=True)
    assert contents(run) == before


def test_checkpoints_of_another_run_are_never_gone_on_from(run, photos, tmp_path, stopped):
    fresh = tmp_path / "fresh"
    shutil.copytree(run / "checkpoints", fresh / "checkpoints")
    with pytest.raises(InputError, match="choose another --out"):
        train(photos, fresh, seed=5)
    shutil.copy(run / "checkpoints" / "step-00000006.pt", stopped / "checkpoints")
    with pytest.raises(InputError, match="belongs to another run"):
        frossl.resume(stopped, quiet=True)
    (stopped / "checkpoints" / "step-00000006.pt").unlink()
    assert frossl.resume(stopped, quiet=True).status["step"] == 6
    assert contents(stopped)["encoder.safetensors"] == contents(run)["encoder.safetensors"]


def test_a_run_without_checkpoints_is_not_trained_again_over_its_encoder(run):
    shutil.rmtree(run / "checkpoints")
    before = contents(run)
    with pytest.raises(InputError, match=r"checkpoints .* are missing"):
        frossl.resume(run, epochs=4, quiet=True)
    assert contents(run) == before


def test_what_comes_after_the_last_step_is_made_up_for(run):
    """As a run is that was killed while it was evaluated."""
    status = json.loads((run / "status.json").read_text())
    status.pop("closed", None)
    (run / "status.json").write_text(json.dumps(status))
    for name in ("report.html", "sample.npz"):
        (run / name).unlink()
    before = contents(run)
    assert frossl.resume(run, quiet=True).status["state"] == "finished"
    after = contents(run)
    assert {"report.html", "sample.npz"} <= after.keys()
    assert before["encoder.safetensors"] == after["encoder.safetensors"]
    assert before["metrics.jsonl"] == after["metrics.jsonl"]
    assert len(read_lines(run / "evaluation.jsonl")) == 1


def test_a_relative_place_stays_where_it_was_if_the_process_moves(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def move(ids, tensors, clock):
        os.chdir(tmp_path / "elsewhere")

    run = train(photos, "run", callbacks=[frossl.Callback(every=1, function=move)])
    assert run.status["state"] == "finished"
    assert (tmp_path / "run" / "encoder.safetensors").is_file()
    assert not any((tmp_path / "elsewhere").iterdir())
    assert run.knn().trained.images > 0


def test_a_disk_that_fills_while_a_checkpoint_is_written_is_named(photos, tmp_path):
    """By a limit on the size of files, which ends a write as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def starve(ids, tensors, clock):
        if clock.step == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))

    try:
        with pytest.raises(TrainingError, match=r"cannot be written .*its newest checkpoint is intact"):
            train(
                photos,
                tmp_path / "run",
                checkpoint_every=2,
                callbacks=[frossl.Callback(every=1, function=starve)],
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000002.pt"]
    assert frossl.resume(tmp_path / "run", quiet=True).status["state"] == "finished"


# records


@pytest.mark.parametrize(
    "torn", ['{"step": 6, "proto', '{"step": 6, "proto{"step": 6}\n', "[1, 2]\n", "\x00\n"]
)
def test_a_torn_line_spoils_no_other_record(torn, run, photos):
    with (run / "evaluation.jsonl").open("a") as file:
        file.write(torn)
    figures = frossl.knn(run, k=3)
    kept = frossl.Run(run).evaluation
    assert len(kept) == 2
    assert kept[-1]["percent"] == figures.percents()
    assert frossl.compare([run]).arms
    assert frossl.export(run).is_file()
    assert frossl.resume(run, epochs=3, quiet=True).status["state"] == "finished"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluation.jsonl", '{"step": "six", "protocol": 1, "percent": [], "data": {}}\n'),
        ("evaluation.jsonl", '{"step": 6, "protocol": "kNN", "percent": {"trained": "high"}}\n'),
        (
            "evaluation.jsonl",
            '{"step": 6, "protocol": "kNN", "data": "x", "split": [], "percent": {"trained": 1.0}}\n',
        ),
        ("metrics.jsonl", '{"step": 6, "seconds": "long", "images_per_second": {}}\n'),
        ("diagnostics.jsonl", '{"step": 6, "verdict": 7, "z_rank": null, "z_eigenvalues": 3, "knn": "x"}\n'),
        ("status.json", '{"state": 3, "step": "x", "total": null, "verdict": []}'),
        ("status.json", "[]"),
        ("provenance.json", '{"id": 3, "images": "many", "versions": []}'),
    ],
)
def test_mistyped_records_end_no_reader_in_a_traceback(name, content, run):
    with (run / name).open("a" if name.endswith("l") else "w") as file:
        file.write(content)
    for read in (frossl.report, frossl.knn, frossl.export, lambda path: frossl.compare([path])):
        with contextlib.suppress(InputError):
            read(run)


@pytest.mark.parametrize("content", ["train = 'x'\nnetwork = 1", "[train]\nbatch_size = 'x'\nepochs = []"])
def test_a_run_with_a_mistyped_configuration_can_be_watched(content, run, capsys):
    (run / "config.toml").write_text(content)
    frossl.watch(run)
    assert "finished" in capsys.readouterr().out


def test_a_run_of_a_method_that_does_not_exist_can_be_evaluated_but_not_resumed(run):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('method = "frossl"', 'method = "\\n"'))
    assert frossl.knn(run, k=3).trained.images > 0
    with pytest.raises(InputError, match="method"):
        frossl.resume(run, epochs=3, quiet=True)


def test_a_run_whose_views_are_gone_from_its_configuration_is_refused(run):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.partition("[[views]]")[0])
    with pytest.raises(InputError, match="views"):
        frossl.knn(run)


@pytest.mark.parametrize("content", ["{}", "[]", '{"step": "x"}', '{"step": -1}'])
def test_a_bad_batch_without_its_step_cannot_be_replayed(content, run):
    (run / "bad_batch.json").write_text(content)
    with pytest.raises(InputError, match="which step"):
        frossl.replay(run)


# several processes


def test_a_living_run_is_left_alone_and_who_holds_it_is_named(photos, tmp_path):
    out, answers = tmp_path / "run", []

    def disturb(ids, tensors, clock):
        if clock.step == 1:
            given = ["--out", str(out), "--overwrite", "--quiet"]
            for command in (["resume", str(out)], ["pretrain", str(photos), *given]):
                answers.append(subprocess.run([*FROSSL, *command], capture_output=True, text=True))

    run = train(photos, out, callbacks=[frossl.Callback(every=1, function=disturb)])
    assert run.status["state"] == "finished"
    assert [record["step"] for record in run.metrics] == [1, 2, 3, 4, 5, 6]
    for answer in answers:
        assert answer.returncode == 2
        assert f"process {os.getpid()} on " in answer.stderr
        assert "Traceback" not in answer.stderr
    assert not (out / ".lock").exists()


@pytest.mark.parametrize(
    ("change", "age", "taken"),
    [
        ({}, 0, False),
        ({"pid": 1 << 30}, 0, True),
        ({"started": "1"}, 0, True),
        ({"boot": "another"}, 0, True),
        ({"host": "elsewhere"}, 60, False),
        ({"host": "elsewhere"}, 400, True),
    ],
)
def test_a_lock_is_stale_by_process_and_boot_here_and_by_its_heartbeat_elsewhere(
    change, age, taken, photos, tmp_path, monkeypatch
):
    held = []

    def look(ids, tensors, clock):
        held.append((tmp_path / "run" / ".lock").read_text())

    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    train(photos, tmp_path / "run", callbacks=[frossl.Callback(every=1, function=look)])
    monkeypatch.delenv("FROSSL_MAX_STEPS")
    lock = tmp_path / "run" / ".lock"
    lock.write_text(json.dumps(json.loads(held[0]) | change))
    os.utime(lock, (time.time() - age,) * 2)
    if taken:
        assert frossl.resume(tmp_path / "run", quiet=True).status["state"] == "finished"
        assert not lock.exists()
    else:
        with pytest.raises(InputError, match="is in use by"):
            frossl.resume(tmp_path / "run", quiet=True)
        assert lock.exists()
