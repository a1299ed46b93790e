"""Run folders."""

from __future__ import annotations

import os

import pytest

from frossl.errors import InputError
from frossl.runs import RunFolder
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
        lines.append({"step": step, "name": "Grüße"})
    with lines.path.open("a") as file:
        file.write('{"step": 40, "na')
    assert [record["step"] for record in lines] == [10, 20, 30]
    (folder.checkpoints / ".writing-step-00000040.pt-x").write_text("half")
    folder.forget_after(20)
    assert [record["step"] for record in lines] == [10, 20]
    assert list(folder.checkpoints.iterdir()) == []
    assert lines.path.read_text(encoding="utf-8").endswith("}\n")


def test_a_folder_that_holds_something_is_not_taken(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    run.write_text("config.toml", "")
    with pytest.raises(InputError, match="frossl resume"):
        RunFolder.create(tmp_path / "run")
    (tmp_path / "run" / "left.txt").write_text("from the earlier run")
    RunFolder.create(tmp_path / "run", overwrite=True)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["checkpoints"]

    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="not a run"):
            RunFolder.create(tmp_path / "thesis", overwrite=overwrite)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        RunFolder.create(tmp_path / "file")
    with pytest.raises(InputError, match="cannot create"):
        RunFolder.create(tmp_path / "file" / "below")


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run at"):
        RunFolder.open(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no run"):
        RunFolder.open(tmp_path)
