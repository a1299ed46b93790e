"""Eigenvalues of the covariance of a run's embeddings over its steps: the numbers of the paper's figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from frossl.errors import InputError
from frossl.runs import RunFolder

Kind = Literal["z", "features"]
"""Projections or features."""

RISE_FACTOR = 1.5
"""Multiple of its first value from which λ₂₀ counts as risen."""
FALL_FACTOR = 0.9
"""Share of its peak below which λ₂₀ counts as fallen; a noisy plateau stays above it."""
MEDIAN_WINDOW = 5
"""Number of records in the running median, as one batch is a noisy sample."""


@dataclass(frozen=True)
class Trajectory:
    """Largest eigenvalues of the covariance of a run's embeddings (first view) over its steps."""

    name: str
    steps: tuple[int, ...]
    eigenvalues: tuple[tuple[float, ...], ...]
    """Eigenvalues of each step, largest first."""

    @property
    def last(self) -> list[float]:
        """Smallest recorded eigenvalue (λ₂₀) over the steps."""
        return [values[-1] for values in self.eigenvalues]

    @property
    def saturation(self) -> int | None:
        """Step at which the last eigenvalue peaks: it has risen and begins to fall.

        That is the first peak of its running median over five records that is at least 1.5 times its first
        value and is followed by a fall of more than a tenth. None if it has not risen or not fallen yet.
        """
        return _first_peak(self.steps, smoothed(self.last))

    @property
    def condition(self) -> float:
        """Condition number λ₁ / λ₂₀ at the end, as the median of the last five records."""
        ratios = [values[0] / max(values[-1], 1e-12) for values in self.eigenvalues[-MEDIAN_WINDOW:]]
        return statistics.median(ratios)

    def to_json(self) -> dict[str, Any]:
        """Return a summary as plain data, as `frossl spectrum --json` prints it."""
        first, last = self.eigenvalues[0], self.eigenvalues[-1]
        return {
            "run": self.name,
            "steps": self.steps[-1],
            "saturation": self.saturation,
            "condition": round(self.condition, 2),
            "first": [first[0], first[-1]],
            "last": [last[0], last[-1]],
        }


def trajectory(run: str | Path, kind: Kind = "z", *, relative: bool = False) -> Trajectory:
    """Read the eigenvalues of a run from its diagnostics.

    Args:
        run: Run folder.
        kind: `z` for the projections, `features` for the features of the encoder.
        relative: Divide by the sum of the recorded eigenvalues, as many objectives are invariant to scale.

    Raises:
        InputError: If fewer than two records have eigenvalues.
    """
    folder = RunFolder.open(run)
    records = [record for record in folder.diagnostics if record.eigenvalues(kind)]
    if len(records) < 2:
        raise InputError(
            f"{run} has no spectra in diagnostics.jsonl; train it with this version of frossl, or longer"
        )
    count = min(len(record.eigenvalues(kind)) for record in records)
    values = [tuple(record.eigenvalues(kind)[:count]) for record in records]
    if relative:
        values = [tuple(value / max(sum(row), 1e-30) for value in row) for row in values]
    return Trajectory(folder.path.name, tuple(record.step for record in records), tuple(values))


def smoothed(values: Sequence[float]) -> list[float]:
    """Return the running median."""
    half = MEDIAN_WINDOW // 2
    return [statistics.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def _first_peak(steps: Sequence[int], values: Sequence[float]) -> int | None:
    start, peak = max(values[0], 1e-12), 0
    for i, value in enumerate(values):
        if value > values[peak]:
            peak = i
        elif value < FALL_FACTOR * values[peak] and values[peak] >= RISE_FACTOR * start:
            return steps[peak]
    return None
