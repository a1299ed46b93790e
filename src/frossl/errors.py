"""What can go wrong, in words a user can act on.

    FrosslError
    ├── InputError      bad input, found before any work: exit code 2
    │   └── ConfigError     a field of the configuration, or an option of a loss, named; a ValueError too
    └── TrainingError   a run that could not go on: exit code 1
        ├── NotFiniteError  NaN or infinity where numbers were expected; a ValueError too
        ├── BadStepError    a step that was not finite, by its number
        ├── CollapseError   all images have become one point
        └── LostError       another process of the run is gone

Every message is one line that names the value and ends with a hint.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping


class FrosslError(Exception):
    """Base of every error that frossl raises on purpose."""

    exit_code = 1


class InputError(FrosslError):
    """Bad input: a path, a name, a number. Found before any work."""

    exit_code = 2


class ConfigError(InputError, ValueError):
    """A field of the configuration, or an option of a loss, has a value that cannot work."""

    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(f"{field} = {value!r} cannot work; {hint}")


class TrainingError(FrosslError):
    """A run that could not go on; its folder says why."""


class NotFiniteError(TrainingError, ValueError):
    """NaN or infinity where finite numbers were expected."""


class BadStepError(TrainingError):
    """A step that was not finite. Weights and state are as they were before it."""

    def __init__(self, step: int, numbers: Mapping[str, float], place: str = "") -> None:
        self.step, self.numbers = step, dict(numbers)
        lost = [name for name, value in numbers.items() if not math.isfinite(value)]
        self.term = "z" if place else next(iter(lost), "weights")
        said = place or ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        super().__init__(f"step {step} is not finite: {self.term} ({said}); try a lower --lr")


class CollapseError(TrainingError):
    """All images have become one point: there is nothing left to learn from."""


class LostError(TrainingError):
    """Another process of the run is gone."""


def first_line(error: BaseException) -> str:
    """What went wrong, of libraries that say it in several lines or not at all."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a registry, with the nearest names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif len(names) <= 20:
        hint = f"known: {', '.join(names)}"
    else:
        hint = f"there are {len(names)} names; see `frossl list {kind}s`"
    return InputError(f"no {kind} is called {name!r}; {hint}")
