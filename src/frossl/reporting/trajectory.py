"""How the eigenvalues of a run's embeddings went: the paper's figure, as numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from frossl.errors import InputError
from frossl.runs import RunFolder

Kind = Literal["z", "features"]

RISEN = 1.5
"""Times its first value: λ₂₀ has risen."""
FALLEN = 0.9
"""Of its top: λ₂₀ falls. A noisy plateau does not."""
SMOOTH = 5
"""Looks whose median is taken, as one batch is a noisy sample."""


@dataclass(frozen=True)
class Trajectory:
    """The largest eigenvalues of the covariance of a run's embeddings (first view), over its steps."""

    name: str
    steps: tuple[int, ...]
    eigenvalues: tuple[tuple[float, ...], ...]
    """For each step, largest first."""

    @property
    def last(self) -> list[float]:
        """λ of the highest index that is kept (20), over the steps."""
        return [values[-1] for values in self.eigenvalues]

    @property
    def saturation(self) -> int | None:
        """The first step at which the last eigenvalue has risen and begins to fall: where its median over
        five looks has its first top, half as high again as it began, before it falls by a tenth. None if it
        has not (yet) risen, or not fallen."""
        return _first_top(self.steps, smoothed(self.last))

    @property
    def condition(self) -> float:
        """λ₁ / λ₂₀ at the end, as the median of the last looks."""
        ratios = [values[0] / max(values[-1], 1e-12) for values in self.eigenvalues[-SMOOTH:]]
        return statistics.median(ratios)

    def to_json(self) -> dict[str, Any]:
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
    """relative: shares of the sum of those that are kept, as many objectives do not see the scale."""
    folder = RunFolder.open(run)
    looks = [look for look in folder.diagnostics if look.get(f"{kind}_eigenvalues")]
    if len(looks) < 2:
        raise InputError(
            f"{run} has no spectra in diagnostics.jsonl; train it with this version of frossl, or longer"
        )
    count = min(len(look[f"{kind}_eigenvalues"]) for look in looks)
    values = [tuple(look[f"{kind}_eigenvalues"][:count]) for look in looks]
    if relative:
        values = [tuple(value / max(sum(row), 1e-30) for value in row) for row in values]
    return Trajectory(folder.path.name, tuple(look["step"] for look in looks), tuple(values))


def smoothed(values: Sequence[float]) -> list[float]:
    """Running median."""
    half = SMOOTH // 2
    return [statistics.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def _first_top(steps: Sequence[int], values: Sequence[float]) -> int | None:
    start, best = max(values[0], 1e-12), 0
    for i, value in enumerate(values):
        if value > values[best]:
            best = i
        elif value < FALLEN * values[best] and values[best] >= RISEN * start:
            return steps[best]
    return None
