"""A run folder, to be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from frossl.api.measuring import knn, probe
from frossl.api.subject import Comparison, Where
from frossl.artifacts import load_encoder
from frossl.config import Config
from frossl.networks import Encoder
from frossl.runs import RunFolder, outcome_of


@dataclass(frozen=True)
class Run:
    """A run folder, to be asked."""

    path: Path

    @property
    def config(self) -> Config:
        return Config.read(RunFolder.open(self.path).config_file)

    @property
    def status(self) -> dict[str, Any]:
        """`state` (running, finished, stopped, failed), `step`, `total`, `reason`, `verdict`."""
        return RunFolder.open(self.path).read_status()

    @property
    def verdict(self) -> dict[str, str]:
        """The verdict by what was measured so far: `kind`, `reason`, `advice` (docs/diagnostics.md)."""
        return outcome_of(RunFolder.open(self.path))

    @property
    def interrupted(self) -> bool:
        """Stopped by a signal before its end (and not by FROSSL_MAX_STEPS)."""
        status = self.status
        return bool(status["state"] == "stopped" and status["reason"] != "FROSSL_MAX_STEPS")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return list(RunFolder.open(self.path).metrics)

    @property
    def diagnostics(self) -> list[dict[str, Any]]:
        """What it found out about itself: spectra, online accuracies, and what watches returned."""
        return list(RunFolder.open(self.path).diagnostics)

    @property
    def evaluation(self) -> list[dict[str, Any]]:
        """What was measured at its end and after it, oldest first."""
        return list(RunFolder.open(self.path).evaluation)

    def encoder(self) -> Encoder:
        return load_encoder(self.path)

    def knn(self, *, k: int | None = None, crops: int | None = None, **where: Unpack[Where]) -> Comparison:
        return knn(self.path, k=k, crops=crops, **where)

    def probe(self, *, labels: Sequence[int] | None = None, **where: Unpack[Where]) -> dict[str, Comparison]:
        return probe(self.path, labels=labels, **where)
