"""docs/add_a_method.md, followed to the letter in a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.support.docs import BLOCK

PAGE = (ROOT / "docs" / "add_a_method.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_adds_a_method_that_passes_the_contract(tmp_path):
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (_, module), (_, lines) = BLOCK.findall(PAGE)
    (tmp_path / "src/frossl/methods/fastsiam.py").write_text(module, encoding="utf-8")
    importing, entry = lines.splitlines()
    registry = tmp_path / "src/frossl/methods/__init__.py"
    head, tail = registry.read_text(encoding="utf-8").split("class MethodEntry(", 1)
    opening = "METHODS: dict[str, MethodEntry] = {\n"
    assert opening in tail
    text = f"{head}{importing}\n\n\nclass MethodEntry(" + tail.replace(opening, f"{opening}{entry}\n")
    registry.write_text(text, encoding="utf-8")

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "tests/contract/test_methods.py", "-k", "fastsiam"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    listing = [sys.executable, "-c", "from frossl.cli import main; main()", "list", "methods"]
    names = subprocess.run(listing, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "fastsiam" in names.stdout.split()
