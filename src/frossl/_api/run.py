"""Read access to a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from frossl._api.eval_context import EvalOptions
from frossl._api.evaluate import knn, probe
from frossl.config import Config
from frossl.evaluation import Evaluation
from frossl.exporting import load_encoder
from frossl.networks import Encoder
from frossl.runs import RunFolder, outcome_of


@dataclass(frozen=True)
class Run:
    """Run folder, with its configuration, status, records and encoder.

    Properties read the folder at every access, so they are up to date while the run is training.
    """

    path: Path
    """Run folder."""

    @property
    def config(self) -> Config:
        """Configuration that the run was trained with."""
        return Config.read(RunFolder.open(self.path).config_file)

    @property
    def status(self) -> dict[str, Any]:
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
        return bool(status["state"] == "stopped" and status["reason"] != "FROSSL_MAX_STEPS")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Records of training steps, such as losses and learning rate, oldest first."""
        return list(RunFolder.open(self.path).metrics)

    @property
    def diagnostics(self) -> list[dict[str, Any]]:
        """Records of diagnostics, oldest first: spectra, online accuracies, and values from callbacks."""
        return list(RunFolder.open(self.path).diagnostics)

    @property
    def evaluation(self) -> list[dict[str, Any]]:
        """Records of evaluations at the end of the run and later, oldest first."""
        return list(RunFolder.open(self.path).evaluation)

    def encoder(self) -> Encoder:
        """Load the trained encoder; see `frossl.load_encoder`."""
        return load_encoder(self.path)

    def knn(
        self, *, k: int | None = None, crops: int | None = None, **options: Unpack[EvalOptions]
    ) -> Evaluation:
        """Evaluate by k nearest neighbours; see `frossl.knn`.

        Args:
            k: Number of neighbours; 20 if None, or all labelled training images if there are fewer.
            crops: Number of random crops to average the features of an image over; None for the whole image.
            **options: See `EvalOptions`.
        """
        return knn(self.path, k=k, crops=crops, **options)

    def probe(
        self, *, labels: Sequence[int] | None = None, **options: Unpack[EvalOptions]
    ) -> dict[str, Evaluation]:
        """Evaluate by logistic regression on frozen features; see `frossl.probe`.

        Args:
            labels: Numbers of labels per class; those of 1, 5, 10 and 50 that the smallest class has if None.
            **options: See `EvalOptions`.
        """
        return probe(self.path, labels=labels, **options)
