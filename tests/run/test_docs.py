"""Every command and code block of the README and the docs runs (shortened by FROSSL_MAX_STEPS)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from frossl.cli import main
from tests.support import ROOT
from tests.support.docs import BLOCK
from tests.support.images import write_image

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def block(page: Path, number: int, language: str, text: str):
    """What starts several processes or runs takes its time."""
    long = "--devices" in text or text.count("frossl pretrain") > 2
    marks = [pytest.mark.slow] if long else []
    return pytest.param(language, text, id=f"{page.relative_to(ROOT)}-{number}-{language}", marks=marks)


BLOCKS = [
    block(page, number, *found)
    for page in PAGES
    for number, found in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with what the pages mention: photos in class folders, and the file of a method."""
    page = (ROOT / "docs" / "add_a_method.md").read_text(encoding="utf-8")
    (tmp_path / "fastsiam.py").write_text(BLOCK.findall(page)[0][1], encoding="utf-8")
    for i in range(24):
        write_image(tmp_path / "photos" / "ab"[i % 2] / f"{i}.jpg", width=64 + i, height=64, seed=i)
    return tmp_path


def run_here(line: str, place: Path, monkeypatch) -> None:
    """A command of ours, in this process: most of what it would take is importing torch again."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, line


def run(command: list[str], place: Path) -> None:
    bin_folder = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "FROSSL_MAX_STEPS": "2",
        "PATH": bin_folder + os.pathsep + os.environ["PATH"],
    }
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_block_runs(language, text, place, monkeypatch):
    if language == "python":
        run([sys.executable, "-c", text], place)
    elif language == "sh":
        for line in text.splitlines():
            if line.startswith("make "):
                run(
                    ["make", "--no-print-directory", "-n", "-C", str(ROOT), *line.split("#")[0].split()[1:]],
                    place,
                )
            elif line.startswith("frossl ") and "--devices" not in line and ">" not in line:
                run_here(line, place, monkeypatch)
            elif line.startswith(("frossl ", "python ")):
                run(["bash", "-c", line.replace("examples/", f"{ROOT}/examples/")], place)
            else:
                assert line == "source .venv/bin/activate" or not line.strip(), line
    else:
        assert language == "text", f"a {language} block: what runs it?"


def test_pages_name_no_missing_file():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_example_runs_whole(tmp_path):
    shutil.copy(ROOT / "examples" / "one_file_frossl.py", tmp_path)
    run(
        [sys.executable, "one_file_frossl.py", str(ROOT / "examples" / "data" / "cifar10-mini.webp")],
        tmp_path,
    )
