"""Exceptions of frossl.

    FrosslError
    ├── InputError      invalid input, found before any work: exit code 2
    │   └── ConfigError     invalid field of the configuration or option of a loss; also a ValueError
    └── TrainingError   a run that could not continue: exit code 1
        ├── NotFiniteError  NaN or infinity where finite numbers were expected; also a ValueError
        ├── BadStepError    a training step that was not finite
        ├── CollapseError   embeddings that have collapsed to one point
        └── LostError       another process of the run that has ended or stopped responding

Every message is one line that names the value and ends with a hint on what to do.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping


class FrosslError(Exception):
    """Base class of every error that frossl raises on purpose."""

    exit_code = 1
    """Exit code of a command that ends with this error."""


class InputError(FrosslError):
    """Invalid input, such as a path, a name or a number; raised before any work is done."""

    exit_code = 2


class ConfigError(InputError, ValueError):
    """Invalid value of a configuration field or of a loss's option.

    Args:
        field: The dotted name of the field.
        value: The value that was given.
        hint: What to give instead.
    """

    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(f"{field} = {value!r} cannot work; {hint}")


class TrainingError(FrosslError):
    """Run that could not continue; the reason is recorded in its run folder."""


class NotFiniteError(TrainingError, ValueError):
    """NaN or infinity where finite numbers were expected."""


class BadStepError(TrainingError):
    """Training step that was not finite; weights and state are those from before the step.

    Args:
        step: Number of the step.
        numbers: Loss terms and other numbers of the step, by name.
        place: Message of the error about embeddings that are not finite; empty if they were finite.
    """

    def __init__(self, step: int, numbers: Mapping[str, float], place: str = "") -> None:
        self.step, self.numbers = step, dict(numbers)
        not_finite = [name for name, value in numbers.items() if not math.isfinite(value)]
        self.term = "z" if place else next(iter(not_finite), "weights")
        details = place or ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        super().__init__(f"step {step} is not finite: {self.term} ({details}); try a lower --lr")


class CollapseError(TrainingError):
    """Embeddings that have collapsed: all images have the same one, so training cannot continue."""


class LostError(TrainingError):
    """Another process of the run has ended or stopped responding."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that is not in a registry; its hint lists the closest names.

    Args:
        kind: Singular noun for what the registry holds, such as `method`.
        name: The name that was not found.
        known: The names in the registry.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif len(names) <= 20:
        hint = f"known: {', '.join(names)}"
    else:
        hint = f"there are {len(names)} names; see `frossl list {kind}s`"
    return InputError(f"no {kind} is called {name!r}; {hint}")
