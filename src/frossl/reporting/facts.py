"""What a run folder says, as far as it can be read: a report is wanted most where something went wrong."""

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
from frossl.reporting.charts import Curve, Mark, is_number
from frossl.runs import RunFolder, outcome
from frossl.runs.record import TEXT, JsonLines

Record = dict[str, Any]
ROUNDING = 1e-5
"""Of the sum of the sizes of what is summed, in float32."""
ROWS = ("pixels", "colors", "untrained", "trained")
"""Of an accuracy, in the order in which they are shown; others follow."""


@dataclass(frozen=True)
class Facts:
    """One run."""

    folder: RunFolder
    name: str
    status: Record
    provenance: Record
    toml: str
    config: Config | None
    metrics: list[Record]
    looks: list[Record]
    """Records of diagnostics.jsonl."""
    evaluation: list[Record]
    bad_files: int
    troubles: list[str] = field(default_factory=list)
    """What could not be read, in words."""

    @classmethod
    def read(cls, run: str | Path) -> Facts:
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
            troubles.append(f"{name} holds no table")
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
            looks=_records(folder.diagnostics, troubles),
            evaluation=_records(folder.evaluation, troubles),
            bad_files=len(folder.bad_files.read_bytes().splitlines()) if folder.bad_files.is_file() else 0,
            troubles=troubles,
        )

    @property
    def images(self) -> int | None:
        images = self.provenance.get("images")
        return images if isinstance(images, int) and images > 0 else None

    @property
    def steps_an_epoch(self) -> int | None:
        if self.config is None or self.images is None:
            return None
        return max(1, self.images // min(self.config.train.batch_size, self.images))

    @property
    def state(self) -> str:
        """finished, stopped, failed or running, with the step."""
        state, step, total = (self.status.get(key) for key in ("state", "step", "total"))
        if state is None:
            return "no step was taken"
        at = f" at step {step:,} of {total:,}" if is_number(step) and is_number(total) and total else ""
        reason = self.status.get("reason")
        return f"{state}{at}" + (f": {reason}" if reason else "")

    @property
    def verdict(self) -> dict[str, str]:
        """With what was measured since the run ended, if anything was."""
        source = self.config.data.source if self.config else ""
        weights = bool(self.config and self.config.network.weights)
        return outcome(self.status, self.looks, self.evaluation, source=source, weights=weights)

    @property
    def seconds(self) -> float:
        return max((s for r in (*self.metrics, *self.looks) if is_number(s := r.get("seconds"))), default=0.0)

    @property
    def images_per_second(self) -> float | None:
        speeds = self._numbers("images_per_second")
        return statistics.median(speeds) if speeds else None

    @property
    def memory_gb(self) -> float | None:
        return max(self._numbers("memory_gb"), default=None)

    def _numbers(self, key: str) -> list[float]:
        return [value for record in self.metrics if is_number(value := record.get(key))]

    def newest(self, key: str) -> float | None:
        """The last number of that name among the looks."""
        return next((v for look in reversed(self.looks) if is_number(v := look.get(key))), None)

    def mark(self, record: Record) -> Mark:
        step, seconds = record["step"], record.get("seconds")
        epoch = record.get("epoch")
        if self.steps_an_epoch is not None:
            epoch = step / self.steps_an_epoch
        elif not is_number(epoch):
            epoch = step
        return Mark(step, epoch, seconds / 60 if is_number(seconds) else None)

    def curve(self, key: str, name: str, *, looks: bool = False, place: int = 0) -> Curve:
        """Of a number among the metrics, or the looks."""
        records = self.looks if looks else self.metrics
        return Curve.of(name, ((self.mark(record), record.get(key)) for record in records), place=place)

    @property
    def parts(self) -> list[str]:
        """Names of what the loss is the sum of, as the newest record has them."""
        record = self.metrics[-1] if self.metrics else {}
        known = {"step", "epoch", "lr", "loss", "seconds", "images_per_second", "memory_gb", "effective_rank"}
        others = {
            k: v for k, v in record.items() if k not in known and not k.startswith("ms_") and is_number(v)
        }
        if not is_number(loss := record.get("loss")):
            return []
        sums = [0.0, *itertools.accumulate(others.values())]
        sizes = [0.0, *itertools.accumulate(map(abs, others.values()))]
        # parts come first and sum to the loss, extras follow: as many as do, so that a small one is not lost
        count = max(i for i in range(len(sums)) if not i or abs(sums[i] - loss) <= ROUNDING * sizes[i])
        return list(others)[:count] if count > 1 else []

    @property
    def milliseconds(self) -> list[tuple[str, float]]:
        """Of a mean step, by what they were spent on."""
        keys = list(dict.fromkeys(key for record in self.metrics for key in record if key.startswith("ms_")))
        named = [(key.removeprefix("ms_").replace("_", " "), self._numbers(key)) for key in keys]
        return [(name, statistics.fmean(values)) for name, values in named if values]

    @property
    def protocols(self) -> list[Record]:
        """The newest record of each protocol on each data set, in the order of their first."""
        newest: dict[tuple[str, str], Record] = {}
        for record in self.evaluation:
            known = isinstance(record.get("percent"), dict) and isinstance(record.get("protocol"), str)
            if known and ordered_rows(record):
                newest[record["protocol"], str(record.get("data", ""))] = record
        return list(newest.values())

    def settings(self) -> dict[str, str]:
        """The configuration as dotted keys, flat."""
        try:
            return dict(_flat(tomllib.loads(self.toml)))
        except tomllib.TOMLDecodeError:
            return {}


def ordered_rows(record: Record) -> list[str]:
    """Rows of an accuracy: what needs no training, the run, then others."""
    rows = [row for row, value in record["percent"].items() if is_number(value)]
    return sorted(rows, key=lambda row: ROWS.index(row) if row in ROWS else len(ROWS))


def _records(lines: JsonLines, troubles: list[str]) -> list[Record]:
    if damaged := lines.damaged:
        troubles.append(f"{damaged:,} lines of {lines.path.name} are damaged and left out")
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
