"""Mutated files and odd command lines: no traceback, no hang, no full memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import ROOT


def found_by(tmp_path, *arguments: str) -> dict:
    """What a fuzz found, in a process of its own: it forks, which a test runner's threads would not bear."""
    command = [sys.executable, "-m", "benchmarks.fuzz", "--keep", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_no_odd_file_or_command_ends_in_a_traceback(tmp_path):
    found = found_by(tmp_path, "--cases", "5", "--minutes", "5")
    assert found["cases"] == 30
    assert found["failures"] == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["config", "records", "archives", "images", "weights", "command"])
def test_no_odd_input_of_many_ends_in_a_traceback(target, tmp_path):
    found = found_by(tmp_path, "--targets", target, "--cases", "40", "--minutes", "20", "--seed", "1")
    assert found["cases"] == 40
    assert found["failures"] == []
