"""Content of a run folder, as far as it can be read: reports matter most for runs that went wrong."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frossl.config import Config, steps_per_epoch
from frossl.errors import FrosslError
from frossl.reporting.charts import Curve, Mark
from frossl.runs import DiagnosticRecord, EvaluationRecord, RunFolder, Status, StepRecord, outcome
from frossl.runs.folder import PROVENANCE_FILE
from frossl.runs.json_lines import TEXT, JsonLines, R
from frossl.runs.records import Record, newest_evaluations, training_seconds

ROW_ORDER = ("pixels", "colors", "untrained", "trained")
"""Rows of an evaluation in the order in which they are shown; others follow."""


@dataclass(frozen=True)
class RunData:
    """Content of the folder of one run."""

    folder: RunFolder
    name: str
    status: Status | None
    """Content of status.json; None if it is missing or damaged."""
    provenance: dict[str, Any]
    toml: str
    config: Config | None
    metrics: list[StepRecord]
    diagnostics: list[DiagnosticRecord]
    evaluation: list[EvaluationRecord]
    bad_files: int
    troubles: list[str] = field(default_factory=list)
    """Messages about files that could not be read."""

    @classmethod
    def read(cls, run: str | Path) -> RunData:
        """Read a run folder; files that are missing or damaged are noted in `troubles`."""
        folder = RunFolder.open(run)
        troubles: list[str] = []

        provenance: Any = {}
        try:
            provenance = folder.read_json(PROVENANCE_FILE)
        except FileNotFoundError:
            pass
        except (FrosslError, OSError) as error:
            troubles.append(str(error))
        if not isinstance(provenance, dict):
            troubles.append(f"{PROVENANCE_FILE} is not a JSON object")
            provenance = {}
        status = None
        try:
            status = folder.read_status() if folder.has_status else None
        except (FrosslError, OSError) as error:
            troubles.append(str(error))
        config = None
        toml = folder.config_file.read_text(**TEXT)
        try:
            config = Config.from_toml(toml)
        except FrosslError as error:
            troubles.append(f"config.toml cannot be read: {error}")
        return cls(
            folder=folder,
            name=folder.path.resolve().name or str(folder.path),
            status=status,
            provenance=provenance,
            toml=toml,
            config=config,
            metrics=_records(folder.metrics, troubles),
            diagnostics=_records(folder.diagnostics, troubles),
            evaluation=_records(folder.evaluation, troubles),
            bad_files=len(folder.bad_files.read_bytes().splitlines()) if folder.bad_files.is_file() else 0,
            troubles=troubles,
        )

    @property
    def images(self) -> int | None:
        """Number of training images."""
        images = self.provenance.get("images")
        return images if isinstance(images, int) and images > 0 else None

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of steps per epoch."""
        if self.config is None or self.images is None:
            return None
        return steps_per_epoch(self.images, self.config.train.batch_size)

    @property
    def state(self) -> str:
        """State (finished, stopped, failed or running) with the step and the reason."""
        status = self.status
        if status is None:
            return "status unknown" if self.folder.has_status else "no step was taken"
        at = f" at step {status.step:,} of {status.total:,}" if status.total else ""
        return f"{status.state}{at}" + (f": {status.reason}" if status.reason else "")

    @property
    def verdict(self) -> dict[str, str]:
        """Verdict of the run, including evaluations made after its end."""
        source = self.config.data.source if self.config else ""
        weights = bool(self.config and self.config.network.weights)
        return outcome(self.status, self.diagnostics, self.evaluation, source=source, weights=weights)

    @property
    def seconds(self) -> float:
        """Seconds of training."""
        return training_seconds(self.metrics, self.diagnostics)

    @property
    def images_per_second(self) -> float | None:
        """Median throughput."""
        speeds = self._numbers("images_per_second")
        return statistics.median(speeds) if speeds else None

    @property
    def memory_gb(self) -> float | None:
        """Peak memory."""
        return max(self._numbers("memory_gb"), default=None)

    def _numbers(self, key: str) -> list[float]:
        return [value for record in self.metrics if (value := record.number(key)) is not None]

    def newest(self, key: str) -> float | None:
        """Return the last finite value of a key in the diagnostics records."""
        values = (record.number(key) for record in reversed(self.diagnostics))
        return next((value for value in values if value is not None), None)

    def mark(self, record: Record) -> Mark:
        """Return the step, epoch and time of a record."""
        epoch, per_epoch = record.number("epoch"), self.steps_per_epoch
        if per_epoch is not None:
            epoch = record.step / per_epoch
        minutes = None if record.seconds is None else record.seconds / 60
        return Mark(record.step, record.step if epoch is None else epoch, minutes)

    def curve(self, key: str, name: str, *, diagnostics: bool = False, place: int = 0) -> Curve:
        """Return a curve of the records.

        Args:
            key: Key of the value in the records.
            name: Name in the legend.
            diagnostics: Whether to read diagnostics.jsonl rather than metrics.jsonl.
            place: Index among the curves of a chart.
        """
        records: Sequence[Record] = self.diagnostics if diagnostics else self.metrics
        return Curve.of(name, ((self.mark(record), record.get(key)) for record in records), place=place)

    @property
    def parts(self) -> list[str]:
        """Names of the terms that sum to the loss, from the newest record; empty if there is only one."""
        parts = list(self.metrics[-1].parts) if self.metrics else []
        return parts if len(parts) > 1 else []

    @property
    def milliseconds(self) -> list[tuple[str, float]]:
        """Mean milliseconds of each part of a step."""
        times: dict[str, list[float]] = {}
        for record in self.metrics:
            for part, value in record.milliseconds.items():
                times.setdefault(part, []).append(value)
        return [(part.replace("_", " "), statistics.fmean(values)) for part, values in times.items()]

    @property
    def protocols(self) -> list[EvaluationRecord]:
        """Newest evaluation of each protocol on each data set, oldest first."""
        return newest_evaluations(record for record in self.evaluation if record.percent)

    def settings(self) -> dict[str, str]:
        """Return the configuration as a flat dict with dotted keys."""
        try:
            return dict(_flat(tomllib.loads(self.toml)))
        except tomllib.TOMLDecodeError:
            return {}


def ordered_rows(record: EvaluationRecord) -> list[str]:
    """Return the row names of an evaluation: baselines, the trained network, then others."""
    first = [row for row in ROW_ORDER if row in record.percent]
    return [*first, *(row for row in record.percent if row not in first)]


def _records(lines: JsonLines[R], troubles: list[str]) -> list[R]:
    if damaged := lines.damaged:
        troubles.append(f"{damaged:,} lines of {lines.path.name} are damaged and were skipped")
    return list(lines)


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list) and value and all(isinstance(inner, dict) for inner in value):
        for i, inner in enumerate(value):
            yield from _flat(inner, f"{prefix}[{i}]")
    else:
        yield prefix, value if isinstance(value, str) else str(value)
