"""Run folder as an object: what it holds, and the functions that take a run as methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import frossl.live as live
from frossl._api import checkpoint_scores, embedding, evaluate, exports, reports, train
from frossl.config import Config
from frossl.exporting import load_encoder
from frossl.networks import Encoder
from frossl.runs import DiagnosticRecord, EvaluationRecord, RunFolder, Status, StepRecord, outcome_of

P = ParamSpec("P")
R = TypeVar("R")


def _as_method(function: Callable[Concatenate[Path, P], R]) -> Callable[Concatenate[Run, P], R]:
    """Return a function of a run folder as a method of `Run`, with the same other parameters."""

    @wraps(function)
    def method(self: Run, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self.path, *args, **kwargs)

    return _described(method, function)


def _as_method_of_one(
    function: Callable[Concatenate[list[Path], P], list[R]],
) -> Callable[Concatenate[Run, P], R]:
    """Return a function of several run folders as a method of `Run`, with the result for this one."""

    @wraps(function)
    def method(self: Run, /, *args: P.args, **kwargs: P.kwargs) -> R:
        (found,) = function([self.path], *args, **kwargs)
        return found

    return _described(method, function)


def _described(method: Callable[P, R], function: Callable[..., Any]) -> Callable[P, R]:
    """Give a method the signature of a function with `self` as the first parameter, and a short docstring."""
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    own = first.replace(name="self", annotation=inspect.Parameter.empty)
    name, summary = function.__name__, (function.__doc__ or "").partition("\n")[0]
    method.__dict__["__signature__"] = signature.replace(parameters=[own, *others])
    method.__doc__ = f"{summary}\n\nSee `frossl.{name}`, whose other arguments it takes."
    method.__qualname__ = f"Run.{name}"
    return method


@dataclass(frozen=True)
class Run:
    """Run folder, with its configuration, status, records and encoder.

    Every function of `frossl` that takes a run is also a method, with the same other arguments.

    Properties read the folder at every access, so they are up to date while the run is training.
    """

    path: Path
    """Run folder."""

    @property
    def config(self) -> Config:
        """Configuration that the run was trained with."""
        return Config.read(RunFolder.open(self.path).config_file)

    @property
    def status(self) -> Status:
        """Status of the run: `state` (running, finished, stopped, failed), `step`, `total`, `reason`,
        `verdict`."""
        return RunFolder.open(self.path).read_status()

    @property
    def verdict(self) -> dict[str, str]:
        """Verdict from the records so far: `kind`, `reason`, `advice` (docs/diagnostics.md)."""
        return outcome_of(RunFolder.open(self.path))

    @property
    def interrupted(self) -> bool:
        """Whether a signal stopped the run before its end; False if FROSSL_MAX_STEPS did."""
        status = self.status
        return status.state == "stopped" and status.reason != "FROSSL_MAX_STEPS"

    @property
    def metrics(self) -> list[StepRecord]:
        """Records of training steps, such as losses and learning rate, oldest first."""
        return list(RunFolder.open(self.path).metrics)

    @property
    def diagnostics(self) -> list[DiagnosticRecord]:
        """Records of diagnostics, oldest first: spectra, online accuracies, and values from callbacks."""
        return list(RunFolder.open(self.path).diagnostics)

    @property
    def evaluation(self) -> list[EvaluationRecord]:
        """Records of evaluations at the end of the run and later, oldest first."""
        return list(RunFolder.open(self.path).evaluation)

    def encoder(self) -> Encoder:
        """Load the trained encoder; see `frossl.load_encoder`."""
        return load_encoder(self.path)

    knn = _as_method(evaluate.knn)
    """Evaluate by k nearest neighbours; see `frossl.knn`."""
    probe = _as_method(evaluate.probe)
    """Evaluate by logistic regression on features, with few labels and with all; see `frossl.probe`."""
    linear = _as_method(evaluate.linear)
    """Evaluate by the linear probe of the FroSSL paper; see `frossl.linear`."""
    finetune = _as_method(evaluate.finetune)
    """Evaluate by fine-tuning all layers; see `frossl.finetune`."""
    measure = _as_method(evaluate.measure)
    """Evaluate by several protocols; see `frossl.measure`."""
    checkpoints = _as_method(checkpoint_scores.checkpoints)
    """Score the checkpoints; see `frossl.checkpoints`."""
    embed = _as_method(embedding.embed)
    """Write the features of images to a file; see `frossl.embed`."""
    export = _as_method(exports.export)
    """Write the encoder in another format; see `frossl.export`."""
    resume = _as_method(train.resume)
    """Continue a stopped run; see `frossl.resume`."""
    replay = _as_method(train.replay)
    """Repeat the step at which the run became not finite; see `frossl.replay`."""
    watch = _as_method(live.watch)
    """Show the run live; see `frossl.watch`."""
    report = _as_method(reports.report)
    """Write a page about the run; see `frossl.report`."""
    spectrum = _as_method_of_one(reports.spectrum)
    """Return and draw the eigenvalues of the run; see `frossl.spectrum`."""
