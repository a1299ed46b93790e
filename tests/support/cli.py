"""The command line, in this process or in one of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from frossl.cli import main

FROSSL = [sys.executable, "-m", "frossl"]


def call(monkeypatch, capsys, *arguments: str | Path) -> tuple[int, str, str]:
    """Run the command line in this process: exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["frossl", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def call_checked(monkeypatch, capsys, *arguments: str | Path) -> tuple[str, str]:
    """Run the command line in this process and assert that it succeeds: standard output, standard error."""
    code, out, err = call(monkeypatch, capsys, *arguments)
    assert code == 0, err
    return out, err
