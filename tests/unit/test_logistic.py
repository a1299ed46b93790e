"""Logistic regressions against those of scikit-learn, run to convergence in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from frossl.evaluation.logistic import Logistic, LogisticRegressions


def problem(rows: int, features: int, classes: int, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Overlapping classes whose features are correlated, of scales from 0.1 to 3, and not centered."""
    random = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    values = random.normal(size=(classes, features))[labels] + 2 * random.normal(size=(rows, features))
    mixed = values @ random.normal(size=(features, features)) / features**0.5
    mixed = mixed * np.geomspace(0.1, 3, features) + random.normal(size=features)
    return torch.tensor(mixed, dtype=torch.float32), torch.tensor(labels)


def reference(rows: torch.Tensor, labels: torch.Tensor, C: float, asked: torch.Tensor) -> torch.Tensor:
    model = LogisticRegression(C=C, max_iter=20_000, tol=1e-8).fit(rows.double().numpy(), labels.numpy())
    return torch.from_numpy(model.predict_proba(asked.double().numpy())).float()


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize(
    ("rows", "features", "classes"), [(300, 20, 4), (60, 150, 5), (100, 30, 2), (20, 50, 2), (2, 8, 2)]
)
def test_probabilities_are_those_of_scikit_learn_along_the_path(rows, features, classes, by_rows):
    """Of new rows; two classes have one vector in scikit-learn."""
    X, labels = problem(2 * rows, features, classes)
    known = slice(0, rows)
    fits = LogisticRegressions(X[None, known], labels[None, known], classes, by_rows=by_rows)
    for C in (0.001, 0.1, 1.0):
        found = fits.fit(C).logits(X)[0].softmax(1)
        torch.testing.assert_close(found, reference(X[known], labels[known], C, X), atol=1e-3, rtol=0)


def test_problems_that_are_solved_together_are_solved_as_if_alone():
    parts = [problem(40, 60, 4, seed=seed) for seed in range(3)]
    rows, labels = (torch.stack(part) for part in zip(*parts, strict=True))
    rows[1] *= 10  # its path is longer
    together = LogisticRegressions(rows, labels, 4).fit(0.1).logits(rows[0])
    for i in range(3):
        alone = LogisticRegressions(rows[i : i + 1], labels[i : i + 1], 4).fit(0.1).logits(rows[0])
        torch.testing.assert_close(together[i].softmax(1), alone[0].softmax(1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("by_rows", [True, False])
def test_the_start_changes_the_time_and_not_the_result(by_rows):
    X, labels = problem(90, 100, 3)
    part = torch.arange(90) % 5 > 0
    path = LogisticRegressions(X[None, part], labels[None, part], 3, by_rows=by_rows)
    end = path.fit(1.0).logits(X)
    warm = LogisticRegressions(X[None], labels[None], 3, by_rows=by_rows)
    warm.start_from(path, part)
    weights = warm._weights()
    begun = Logistic(weights, warm.intercept - weights @ warm.mean.mT).logits(X)
    torch.testing.assert_close(begun, end, atol=0.02, rtol=0)
    torch.testing.assert_close(
        warm.fit(0.1).logits(X).softmax(2),
        reference(X, labels, 0.1, X)[None],
        atol=1e-3,
        rtol=0,
    )


def test_odd_features_are_fitted():
    """Constant, duplicate and unscaled features, copies of rows, and none that says anything."""
    X, labels = problem(60, 10, 3)
    odd = torch.cat([X, X[:, :2], torch.full((60, 1), 7.0), torch.zeros(60, 1), 30 * X[:, 2:3]], dim=1)
    odd, labels = odd.repeat(2, 1), labels.repeat(2)
    for by_rows in (True, False):
        found = LogisticRegressions(odd[None], labels[None], 3, by_rows=by_rows).fit(0.1)
        shares = found.logits(odd)[0].softmax(1)
        torch.testing.assert_close(shares, reference(odd, labels, 0.1, odd), atol=5e-3, rtol=0)
    nothing = torch.ones(1, 30, 5)
    votes = LogisticRegressions(nothing, labels[None, :30], 3).fit(1.0).logits(nothing[0])
    torch.testing.assert_close(votes.softmax(2), torch.full((1, 30, 3), 1 / 3), atol=1e-4, rtol=0)
