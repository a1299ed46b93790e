"""Runs on two nodes: network namespaces of one machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NAMESPACES = subprocess.run(["unshare", "-Urnm", "true"], capture_output=True, check=False).returncode == 0

needs_namespaces = pytest.mark.skipif(not NAMESPACES, reason="network namespaces are not allowed here")


def on_two_nodes(script: str, config: Path, out: Path, *arguments: str) -> tuple[str, str]:
    """Run a script of this folder and assert that it succeeds: standard output, standard error."""
    place = Path(__file__).with_name(script)
    command = ["unshare", "-Urnm", "sh", str(place), sys.executable, str(config), str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
