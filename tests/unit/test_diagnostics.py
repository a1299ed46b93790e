"""Every number against another route: numpy, scipy, scikit-learn, in float64."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.stats import linregress
from sklearn.decomposition import PCA

from frossl import diagnostics
from frossl.objectives import FroSSLLoss

SHAPES = [(40, 12), (12, 40), (30, 30)]


def embeddings(*shape: int, seed: int = 0) -> torch.Tensor:
    """Correlated, off center, with a spectrum that decays."""
    random = np.random.default_rng(seed)
    D = shape[-1]
    decay = np.diag(np.arange(1, D + 1) ** -0.8)
    x = random.normal(size=shape) @ decay @ random.normal(size=(D, D)) + random.normal(size=D)
    return torch.from_numpy(x)


def exp_entropy(values: np.ndarray) -> float:
    shares = values / values.sum() + 1e-7
    return float(np.exp(-(shares * np.log(shares)).sum()))


@pytest.mark.parametrize("shape", SHAPES)
def test_eigenvalues_are_those_of_principal_components(shape):
    x = embeddings(*shape)
    expected = PCA().fit(x.numpy()).explained_variance_ * (shape[0] - 1) / shape[0]
    found = diagnostics.eigenvalues(x).numpy()
    np.testing.assert_allclose(found, expected[: min(shape)], rtol=1e-9, atol=1e-9 * expected[0])
    assert (np.diff(found) <= 0).all()
    single = diagnostics.eigenvalues(x.float()).numpy()
    np.testing.assert_allclose(single, expected[: min(shape)], rtol=1e-3, atol=1e-5 * expected[0])


def test_the_effective_rank_counts_equal_directions():
    assert diagnostics.effective_rank(torch.tensor([3.0] * 7 + [0.0] * 9)) == pytest.approx(7)
    assert diagnostics.effective_rank(torch.zeros(5)) == 0


def test_the_effective_rank_is_the_one_that_frossl_gives_for_free():
    z = embeddings(3, 60, 20).float()
    z = (z - z.mean(1, keepdim=True)) / z.std(1, correction=0, keepdim=True)  # as its `centered` columns are
    ours = [float(diagnostics.effective_rank(diagnostics.eigenvalues(view))) for view in z]
    assert FroSSLLoss()(z).extras["effective_rank"].item() == pytest.approx(np.mean(ours), rel=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_rankme(shape):
    x = embeddings(*shape)
    expected = exp_entropy(np.linalg.svd(x.numpy(), compute_uv=False))
    assert float(diagnostics.rankme(x)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("V", [2, 5])
def test_lidar(V):
    centers = embeddings(50, 8)
    z = centers + 0.3 * embeddings(V, 50, 8, seed=1)
    x = z.numpy()
    means = x.mean(0)
    within = sum(np.outer(r, r) for r in (x - means).reshape(-1, 8)) / (50 * (V - 1)) + 1e-4 * np.eye(8)
    between = np.cov(means.T)
    root = np.linalg.inv(np.real(sqrtm(within)))
    expected = exp_entropy(np.linalg.eigvalsh(root @ between @ root))
    assert float(diagnostics.lidar(z)) == pytest.approx(expected, rel=1e-6)


def test_alpha_req_is_the_slope_of_the_spectrum():
    spectrum = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 2, 80) * np.arange(1, 81) ** -1.3)
    expected = -linregress(np.log(np.arange(11, 51)), np.log(spectrum[10:50].numpy())).slope
    assert float(diagnostics.alpha_req(spectrum)) == pytest.approx(expected, rel=1e-9)
    power = torch.arange(1, 200, dtype=torch.float64) ** -0.7
    assert float(diagnostics.alpha_req(power)) == pytest.approx(0.7)
    assert torch.isnan(diagnostics.alpha_req(torch.tensor([1.0, 0.0, 0.0])))


@pytest.mark.parametrize("V", [2, 4])
def test_alignment_and_uniformity(V):
    z = embeddings(V, 20, 6)
    unit = z.numpy() / np.linalg.norm(z.numpy(), axis=-1, keepdims=True)
    pairs = [((unit[a] - unit[b]) ** 2).sum(-1).mean() for a, b in itertools.combinations(range(V), 2)]
    assert float(diagnostics.alignment(z)) == pytest.approx(np.mean(pairs), rel=1e-9)
    distances = [((a - b) ** 2).sum() for a, b in itertools.combinations(unit[0], 2)]
    expected = np.log(np.mean(np.exp(-2 * np.array(distances))))
    assert float(diagnostics.uniformity(z[0])) == pytest.approx(expected, rel=1e-9)
    assert float(diagnostics.alignment(z[:1].expand(3, -1, -1))) == pytest.approx(0, abs=1e-12)


def test_spread_is_one_for_even_directions_and_nothing_for_a_point():
    even = torch.randn(4000, 32, dtype=torch.float64)
    assert float(diagnostics.spread(even)) == pytest.approx(1, abs=0.01)
    assert float(diagnostics.spread(torch.ones(50, 32) + 1e-6 * torch.randn(50, 32))) < 1e-5


def test_dead_units_are_those_that_do_not_change():
    features = torch.rand(100, 10)
    features[:, 3] = 0
    features[:, 7] = 0.4
    assert float(diagnostics.dead_units(features)) == pytest.approx(0.2)
    assert float(diagnostics.dead_units(torch.rand(100, 10))) == 0
    features[:, :6] = 1
    assert float(diagnostics.dead_units(features)) == pytest.approx(0.7)


@pytest.mark.parametrize("shape", [(40, 12), (30, 40)])
def test_the_order_of_the_images_changes_no_number(shape):
    z, features = embeddings(2, *shape), embeddings(2, *shape, seed=1)
    order = np.random.default_rng(0).permutation(shape[0])
    found, again = (
        diagnostics.diagnose({"z": z[:, rows], "features": features[:, rows]})
        for rows in (slice(None), order)
    )
    assert list(found) == list(again)
    for name, value in found.items():
        assert again[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize("shape", [(2, 1), (2, 8), (40, 12)])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e15, 1e30])
@pytest.mark.parametrize("collapsed", [True, False])
def test_no_embeddings_stop_a_run(shape, size, collapsed):
    """Every number is recorded, or none, also of one point and of values near the ends of float32."""
    z = size * embeddings(2, *shape).float()
    z = z[:, :1].expand_as(z) if collapsed else z
    found = diagnostics.diagnose({"z": z, "features": z})
    usual = diagnostics.diagnose({"z": embeddings(2, 40, 12), "features": embeddings(2, 40, 12)})
    assert found.keys() in (usual.keys(), set())
    json.dumps(found)
