"""Fixtures of all tests; helpers are in tests/support."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import frossl.compat  # noqa: F401  before any test imports torchvision
from tests.support.images import write_image

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ONE_WORKER = {
    "tests/distributed/test_exact.py": "one launch",
    "tests/distributed/test_runs.py": "several processes",
    "tests/hostile/test_lost_node.py": "several processes",
    "tests/hostile/test_kill_matrix.py": "kills",
    "tests/hostile/test_two_writers.py": "two writers",
    "tests/web/test_report_page.py": "browser",
    "tests/web/test_site.py": "browser",
}
"""Files whose tests run one after another, because they share costly fixtures or are disturbed by each other.

Marks of pytest-xdist 3.8 (`xdist_group`) have no effect with pytest 9.2, so the scheduler is told directly.
"""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return ONE_WORKER.get(nodeid.partition("::")[0], nodeid)

    return ByFile(config, log)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """JPEG and PNG files of different sizes and modes, flat and nested, without labels."""
    folder = tmp_path / "photos"
    for i in range(12):
        name = f"{i}.jpg" if i % 2 else f"trip/{i}.png"
        mode = "RGB" if i % 2 else ("L", "RGBA", "P")[i % 3]
        write_image(folder / name, width=40 + 7 * i, height=80 - 3 * i, seed=i, mode=mode)
    (folder / "notes.txt").write_text("not an image")
    return folder
