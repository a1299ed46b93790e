"""Loss and gradient of many processes, and of micro-batches, are those of one process on the joined batch.

Real processes on loopback, each with its own share of the images.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
import torch

from frossl.methods import METHODS
from tests.distributed.steps import CASES, measure, measure_all
from tests.support import ROOT


@pytest.fixture(scope="module")
def alone():
    return measure_all(1)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What each of two or three processes found: one launch for either number."""

    @cache
    def found(processes: int) -> list[dict]:
        folder = tmp_path_factory.mktemp(f"world-{processes}")
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        worker = ["-m", "tests.distributed.worker", str(folder)]
        done = subprocess.run([sys.executable, *launcher, *worker], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(processes)]

    return found


BOTH = [
    pytest.param(processes, case, id=f"{processes}-{'-'.join(map(str, case))}")
    for processes in (2, 3)
    for case in CASES[processes]
]


def assert_near(found, expected, *, tolerance: float) -> None:
    for step in ("step 0", "step 2"):
        assert found[step].keys() == expected[step].keys()
        largest = max(value.abs().max() for key, value in expected[step].items() if key != "loss")
        for key, value in expected[step].items():
            scale = value.abs() if key == "loss" else largest
            assert (found[step][key] - value).abs().max() <= tolerance * scale.clamp_min(1e-3), (step, key)


@pytest.mark.parametrize(("processes", "case"), BOTH)
def test_many_processes_have_the_gradient_of_the_joined_batch(processes, case, together, alone):
    name, precision, _ = case
    tolerance = 1e-9 if precision == "64-true" else 1e-4
    expected = alone[name, precision, None]
    shares = torch.cat([found[case]["ids"] for found in together(processes)])
    assert torch.equal(shares, expected["ids"])
    for found in together(processes):
        assert_near(found[case], expected, tolerance=tolerance)


@pytest.mark.parametrize(("processes", "case"), BOTH)
def test_processes_stay_the_same_to_the_bit(processes, case, together):
    assert len({found[case]["bits"] for found in together(processes)}) == 1


@pytest.mark.parametrize("name", METHODS)
def test_micro_batches_have_the_gradient_of_the_whole_batch(name, alone):
    assert_near(alone[name, "64-true", 4], alone[name, "64-true", None], tolerance=1e-9)


def test_the_check_can_fail(alone):
    """In float32 there is another gradient, by 1e-9; and the same measurement twice has the same bits."""
    other = alone["frossl", "64-true", None]
    with pytest.raises(AssertionError):
        assert_near(alone["frossl", "32-true", None], other, tolerance=1e-9)
    assert measure("frossl", precision="64-true", micro=None)["bits"] == other["bits"]
