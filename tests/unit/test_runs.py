"""Run folders."""

from __future__ import annotations

import os

import pytest

from frossl.errors import InputError
from frossl.runs import RunFolder, provenance
from frossl.runs.folder import write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def half(file):
        file.write(b"new")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, half)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert path.read_text() == "old"


def test_files_are_as_readable_as_the_user_wants_them(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", lambda file: file.write(b""))
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_records_leave_out_a_torn_last_line_and_are_cut_back(tmp_path):
    folder = RunFolder.create(tmp_path)
    lines = folder.metrics
    assert list(lines) == []
    for step in (10, 20, 30):
        lines.append({"step": step, "seconds": 1.0, "name": "Grüße"})
    with lines.path.open("a") as file:
        file.write('{"step": 40, "na')
    assert [record["step"] for record in lines] == [10, 20, 30]
    (folder.checkpoints / ".writing-step-00000040.pt-x").write_text("half")
    folder.truncate_after(20)
    assert [record["step"] for record in lines] == [10, 20]
    assert list(folder.checkpoints.iterdir()) == []
    assert lines.path.read_text(encoding="utf-8").endswith("}\n")


def begun(path, **values) -> RunFolder:
    """A run that has just been begun."""
    folder = RunFolder(path)
    with folder.reserved(overwrite=True):
        folder.begin(provenance(seed=0, index_digest="", images=1) | values, export_files=["encoder.onnx"])
        folder.write_text("config.toml", "")
    return folder


def test_a_folder_that_holds_something_is_not_taken(tmp_path):
    begun(tmp_path / "run")
    with pytest.raises(InputError, match="frossl resume"):
        RunFolder.create(tmp_path / "run")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    (tmp_path / "thesis" / "config.toml").write_text("")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="not a run; choose another"):
            RunFolder.check_free(tmp_path / "thesis", overwrite=overwrite)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        RunFolder.create(tmp_path / "file")
    with pytest.raises(InputError, match="cannot create"):
        RunFolder.create(tmp_path / "file" / "below")


def test_overwriting_a_run_removes_what_runs_write_and_nothing_else(tmp_path):
    run = begun(tmp_path / "run")
    ours = [
        "encoder.safetensors",
        "metrics.jsonl",
        "checkpoints/step-00000010.pt",
        "export/onnx/encoder.onnx",
    ]
    theirs = ["notes.md", "checkpoints/best.pt", "export/onnx/serve.py", "photos/a.jpg"]
    for name in ours + theirs:
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text(name)
    begun(tmp_path / "run")
    assert [name for name in ours + theirs if (run.path / name).exists()] == theirs


def test_overwriting_a_run_leaves_a_file_that_somebody_is_writing(tmp_path):
    folder = RunFolder.create(tmp_path)
    (folder.path / ".writing-status.json-x").write_text("half")

    def overwrite(file):
        folder.begin({"program": "frossl"}, export_files=[])
        file.write(b"whole")

    write_atomically(folder.report, overwrite)
    assert folder.report.read_text() == "whole"
    assert not list(tmp_path.glob(".writing-*"))


def test_a_start_that_was_cut_short_can_be_made_again(tmp_path):
    run = begun(tmp_path / "run")
    run.config_file.unlink()  # as if it was killed before that
    RunFolder.check_free(run.path, overwrite=False)
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / ".lock").write_text("{}")
    RunFolder.check_free(tmp_path / "early", overwrite=False)


def test_the_working_folder_and_what_is_read_are_never_taken(tmp_path, monkeypatch):
    (tmp_path / "project" / "photos").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    for path in (".", "..", tmp_path):
        with pytest.raises(InputError, match="holds the working folder"):
            RunFolder.check_free(path, overwrite=True)
    (tmp_path / "link").symlink_to("project/photos")
    with pytest.raises(InputError, match="which the run reads"):
        RunFolder.check_free("photos", overwrite=True, inputs=[tmp_path / "link"])
    RunFolder.check_free("photos/runs/new", overwrite=True, inputs=["photos"])


def test_figures_are_not_given_to_a_run_that_has_taken_the_place_of_the_one_measured(tmp_path):
    run = begun(tmp_path / "run")
    figures = {"step": 1, "protocol": "kNN", "percent": {"trained": 50.0}}
    measured = run.identity()
    run.record_evaluation(figures, identity=measured)
    assert list(run.evaluation) == [figures]
    begun(tmp_path / "run")
    with pytest.raises(InputError, match="was replaced by another run"):
        run.record_evaluation(figures, identity=measured)
    assert list(run.evaluation) == []


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run at"):
        RunFolder.open(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no run"):
        RunFolder.open(tmp_path)
