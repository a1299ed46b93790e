"""A SIGKILL in any phase, and a start afterwards: the same bits, every file whole, nothing missing."""

from __future__ import annotations

import pytest
from benchmarks.kills import PHASES, Matrix


@pytest.fixture(scope="module")
def matrix(tmp_path_factory) -> Matrix:
    return Matrix(tmp_path_factory.mktemp("kills"), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_a_kill_loses_nothing(phase, matrix):
    assert matrix.kill(phase)["problems"] == []
