"""Every objective, in value and gradient, against an independent formula in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.contract.cases import CASES, Case
from tests.reference.objectives import difference_along


@pytest.mark.parametrize(("N", "D"), [(4, 6), (7, 3)])
@pytest.mark.parametrize("V", [2, 3, 8])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradient_equal_an_independent_formula(case: Case, V: int, N: int, D: int):
    rng = np.random.default_rng((V, N, D, 1))
    # views of one image resemble each other, and nothing is centered or of unit length
    z = rng.normal(size=(N, D)) + 0.6 * rng.normal(size=(V, N, D)) + 0.3
    x = torch.tensor(z, requires_grad=True)
    terms = case.loss(x)
    terms.total.backward()
    assert terms.total.item() == pytest.approx(case.reference(z, z), rel=1e-9, abs=1e-11)
    h = 1e-5  # a larger step would cross kinks: VISReg sorts, VICReg has a hinge
    for direction in rng.normal(size=(5, *z.shape)):
        slope = difference_along(lambda y: case.reference(y, z), z, direction, h)
        dot = (x.grad.numpy() * direction).sum()
        assert dot == pytest.approx(slope, rel=1e-6, abs=1e-7 * x.grad.norm().item())
