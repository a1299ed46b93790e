"""Time budgets: how long a run may take, and changes of its length that keep it within its budget."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeGuard

from frossl.config import Settlement
from frossl.errors import InputError
from frossl.runs.records import is_count

MAX_BUDGET = 10 * 365 * 86400.0
"""Largest budget in seconds; more is a mistaken unit."""
LOOKS = 20
"""Number of times that a run compares its pace with its budget."""
TOLERANCE = 0.05
"""Share of the budget by which the end must move before the number of steps is changed."""
WINDOW = 2
"""Number of looks over which the pace is averaged."""


@dataclass(frozen=True)
class Budget:
    """Seconds that a run may take, counted from a value of `time.monotonic()`."""

    seconds: float
    began: float
    only_shortens: bool = False
    """Never make a run longer than its configuration says."""

    @classmethod
    def of(cls, given: str | float | Budget, began: float) -> Budget:
        return given if isinstance(given, Budget) else cls(budget_seconds(given), began)

    @property
    def gone(self) -> float:
        """Seconds spent."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.gone


def is_duration(value: object) -> TypeGuard[float]:
    """Return whether a stored value is a number of seconds within `MAX_BUDGET`."""
    return type(value) in (int, float) and 0 < value <= MAX_BUDGET  # type: ignore[operator]


class Pacer:
    """Pace of a run with a time budget: decides how many steps remain while the machine's speed changes.

    Args:
        budget: Time budget.
        step_seconds: Seconds of a step when the run was planned.
        finish_seconds: Seconds that evaluation and report would take then.
        most: Largest number of steps; None for no limit.
    """

    def __init__(
        self, budget: Budget, *, step_seconds: float, finish_seconds: float, most: int | None = None
    ) -> None:
        self.budget, self.most = budget, most
        self.step_seconds, self.finish_seconds = step_seconds, finish_seconds
        self._looks: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._asked = False

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` needs, beside the seconds of the budget."""
        return {"step_seconds": self.step_seconds, "finish_seconds": self.finish_seconds, "most": self.most}

    @classmethod
    def from_json(cls, budget: Budget, stored: object) -> Self | None:
        """Return the pacer of a stored run; None if what is stored is not valid."""
        if not isinstance(stored, Mapping):
            return None
        step, finish, most = (stored.get(name) for name in ("step_seconds", "finish_seconds", "most"))
        if not is_duration(step) or not is_duration(finish) or not (most is None or is_count(most)):
            return None
        return cls(budget, step_seconds=step, finish_seconds=finish, most=most)

    def add_spent(self, seconds: float) -> None:
        """Count seconds that earlier processes of the run have spent."""
        self.budget = replace(self.budget, began=self.budget.began - seconds)

    def begin(self, step: int) -> None:
        """Start measuring, when `step` steps are done."""
        self._looks.append((step, time.monotonic()))

    def asks(self) -> bool:
        """Return True once when it is time for a look."""
        due = time.monotonic() - self._looks[-1][1] >= self.budget.seconds / LOOKS
        asks, self._asked = due and not self._asked, due
        return asks

    def look(self, step: int, total: int) -> Settlement | None:
        """Return a new number of steps, if the run would miss the end of its budget by too much.

        Evaluation and report are assumed to be slower by as much as steps are.

        Args:
            step: Number of steps done.
            total: Number of steps of the run so far.
        """
        now, (first, since) = time.monotonic(), self._looks[0]
        self._looks.append((step, now))
        self._asked = False
        if step == first:
            return None
        pace = (now - since) / (step - first)
        left = self.budget.left - self.finish_seconds * pace / self.step_seconds
        wanted = step + max(1, int(left / pace))
        if self.most is not None:
            wanted = max(step + 1, min(wanted, self.most))
        moved = abs(wanted - total) * pace
        return Settlement(step, wanted) if moved > TOLERANCE * self.budget.seconds else None


def budget_seconds(budget: str | float) -> float:
    """Parse a duration such as `90s`, `30m`, `2h` or `1h30m`; a number is seconds."""
    if isinstance(budget, str):
        found = re.fullmatch(
            r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", budget.strip()
        )
        if not found or not any(found.groups()):
            raise InputError(f"a budget of {budget!r} is no time; give such as 90s, 30m, 2h or 1h30m")
        hours, minutes, seconds = (float(text or 0) for text in found.groups())
        budget = 3600 * hours + 60 * minutes + seconds
    if not 0 < budget <= MAX_BUDGET:
        raise InputError(
            f"a budget of {budget:g} s is no time to train in; give such as 90s, 30m or 2h, at most ten years"
        )
    return float(budget)
