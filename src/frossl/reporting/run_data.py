"""Content of a run folder, as far as it can be read: reports matter most for runs that went wrong."""

from __future__ import annotations

import itertools
import statistics
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frossl.config import Config
from frossl.errors import FrosslError
from frossl.reporting.charts import Curve, Mark
from frossl.runs import RunFolder, outcome
from frossl.runs.record import TEXT, JsonLines, is_number

Record = dict[str, Any]
ROUNDING = 1e-5
"""Largest rounding error of a float32 sum, relative to the sum of the absolute values of its terms."""
ROW_ORDER = ("pixels", "colors", "untrained", "trained")
"""Rows of an evaluation in the order in which they are shown; others follow."""


@dataclass(frozen=True)
class RunData:
    """Content of the folder of one run."""

    folder: RunFolder
    name: str
    status: Record
    provenance: Record
    toml: str
    config: Config | None
    metrics: list[Record]
    diagnostics: list[Record]
    """Records of diagnostics.jsonl."""
    evaluation: list[Record]
    bad_files: int
    troubles: list[str] = field(default_factory=list)
    """Messages about files that could not be read."""

    @classmethod
    def read(cls, run: str | Path) -> RunData:
        """Read a run folder; files that are missing or damaged are noted in `troubles`."""
        folder = RunFolder.open(run)
        troubles: list[str] = []

        def table(name: str) -> Record:
            try:
                found = folder.read_json(name)
            except FileNotFoundError:
                return {}
            except (FrosslError, OSError) as error:
                troubles.append(str(error))
                return {}
            if isinstance(found, dict):
                return found
            troubles.append(f"{name} is not a JSON object")
            return {}

        config = None
        toml = folder.config_file.read_text(**TEXT)
        try:
            config = Config.from_toml(toml)
        except FrosslError as error:
            troubles.append(f"config.toml cannot be read: {error}")
        return cls(
            folder=folder,
            name=folder.path.resolve().name or str(folder.path),
            status=table("status.json"),
            provenance=table("provenance.json"),
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
        return max(1, self.images // min(self.config.train.batch_size, self.images))

    @property
    def state(self) -> str:
        """State (finished, stopped, failed or running) with the step and the reason."""
        state, step, total = (self.status.get(key) for key in ("state", "step", "total"))
        if state is None:
            return "no step was taken"
        at = f" at step {step:,} of {total:,}" if is_number(step) and is_number(total) and total else ""
        reason = self.status.get("reason")
        return f"{state}{at}" + (f": {reason}" if reason else "")

    @property
    def verdict(self) -> dict[str, str]:
        """Verdict of the run, including evaluations made after its end."""
        source = self.config.data.source if self.config else ""
        weights = bool(self.config and self.config.network.weights)
        return outcome(self.status, self.diagnostics, self.evaluation, source=source, weights=weights)

    @property
    def seconds(self) -> float:
        """Seconds of training."""
        records = (*self.metrics, *self.diagnostics)
        return max((s for record in records if is_number(s := record.get("seconds"))), default=0.0)

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
        return [value for record in self.metrics if is_number(value := record.get(key))]

    def newest(self, key: str) -> float | None:
        """Return the last finite value of a key in the diagnostics records."""
        return next((v for record in reversed(self.diagnostics) if is_number(v := record.get(key))), None)

    def mark(self, record: Record) -> Mark:
        """Return the step, epoch and time of a record."""
        step, seconds = record["step"], record.get("seconds")
        epoch = record.get("epoch")
        if self.steps_per_epoch is not None:
            epoch = step / self.steps_per_epoch
        elif not is_number(epoch):
            epoch = step
        return Mark(step, epoch, seconds / 60 if is_number(seconds) else None)

    def curve(self, key: str, name: str, *, diagnostics: bool = False, place: int = 0) -> Curve:
        """Return a curve of the records.

        Args:
            key: Key of the value in the records.
            name: Name in the legend.
            diagnostics: Whether to read diagnostics.jsonl rather than metrics.jsonl.
            place: Index among the curves of a chart.
        """
        records = self.diagnostics if diagnostics else self.metrics
        return Curve.of(name, ((self.mark(record), record.get(key)) for record in records), place=place)

    @property
    def parts(self) -> list[str]:
        """Names of the terms that sum to the loss, from the newest record."""
        record = self.metrics[-1] if self.metrics else {}
        known = {"step", "epoch", "lr", "loss", "seconds", "images_per_second", "memory_gb", "effective_rank"}
        others = {
            k: v for k, v in record.items() if k not in known and not k.startswith("ms_") and is_number(v)
        }
        if not is_number(loss := record.get("loss")):
            return []
        sums = [0.0, *itertools.accumulate(others.values())]
        sizes = [0.0, *itertools.accumulate(map(abs, others.values()))]
        # terms come first, extras follow: the longest prefix that sums to the loss includes small terms too
        count = max(i for i in range(len(sums)) if not i or abs(sums[i] - loss) <= ROUNDING * sizes[i])
        return list(others)[:count] if count > 1 else []

    @property
    def milliseconds(self) -> list[tuple[str, float]]:
        """Mean milliseconds of each part of a step."""
        keys = list(dict.fromkeys(key for record in self.metrics for key in record if key.startswith("ms_")))
        named = [(key.removeprefix("ms_").replace("_", " "), self._numbers(key)) for key in keys]
        return [(name, statistics.fmean(values)) for name, values in named if values]

    @property
    def protocols(self) -> list[Record]:
        """Newest evaluation record of each protocol on each data set, in order of first appearance."""
        newest: dict[tuple[str, str], Record] = {}
        for record in self.evaluation:
            known = isinstance(record.get("percent"), dict) and isinstance(record.get("protocol"), str)
            if known and ordered_rows(record):
                newest[record["protocol"], str(record.get("data", ""))] = record
        return list(newest.values())

    def settings(self) -> dict[str, str]:
        """Return the configuration as a flat dict with dotted keys."""
        try:
            return dict(_flat(tomllib.loads(self.toml)))
        except tomllib.TOMLDecodeError:
            return {}


def ordered_rows(record: Record) -> list[str]:
    """Return the row names of an evaluation: baselines, the trained network, then others."""
    rows = [row for row, value in record["percent"].items() if is_number(value)]
    return sorted(rows, key=lambda row: ROW_ORDER.index(row) if row in ROW_ORDER else len(ROW_ORDER))


def _records(lines: JsonLines, troubles: list[str]) -> list[Record]:
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
