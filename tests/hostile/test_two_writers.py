"""Two commands on one run folder at once: one waits, is refused in one line, or both results are whole."""

from __future__ import annotations

import pytest
from benchmarks.two_writers import PAIRS, Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Stage:
    return Stage(tmp_path_factory.mktemp("writers"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resume+resume", "knn+knn", "pretrain+pretrain"])
def test_two_commands_at_once_leave_a_whole_run(name, stage):
    for pair in PAIRS:
        if pair.name == name:
            assert stage.run(pair)["problems"] == []
