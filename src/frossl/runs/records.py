"""Records of a run as types: training steps, diagnostics, evaluations, status.

A record is the JSON object that is stored, with its known keys as attributes. Keys that this version does not
know are kept, and keys that an earlier version did not write have a default.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeGuard

FORMAT = 2
"""Format of the records that this version writes, stored in each as `format`.

Format 1, of version 0.1.0, does not store its number. It has no `parts` in metrics.jsonl, no `split` and no
`difference_interval` in evaluation.jsonl, and no `closed` in status.json.
"""
FIRST_FORMAT = 1
STATES = ("running", "finished", "stopped", "failed")
"""States of a run in status.json."""
MILLISECONDS_PREFIX = "ms_"
"""Prefix of the keys of a step that hold the time of one of its parts."""
ROUNDING = 1e-5
"""Largest rounding error of a float32 sum, relative to the sum of the absolute values of its terms."""

Interval = tuple[float, float]


def is_count(value: object) -> TypeGuard[int]:
    """Return whether `value` is an int from 0 to 2⁵³ − 1; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a finite number; a bool is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


class Record(dict[str, Any]):
    """JSON object of a run folder, as it is stored."""

    @classmethod
    def new(cls, values: Mapping[str, Any]) -> Self:
        """Return a record in the current format."""
        return cls({"format": FORMAT} | dict(values) | {"format": FORMAT})

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Return the record of an object that was read from a file, of any format.

        Raises:
            ValueError: If a key that every record of this type has is missing, or a known key has a value of
                the wrong type.
        """
        record = cls(stored)
        record.check()
        return record

    def check(self) -> None:
        """Raise a ValueError if the record is not valid."""
        self._require(is_count(self.get("step")), "step")

    def _require(self, holds: bool, name: str) -> None:
        if not holds:
            raise ValueError(f"{name} = {self.get(name)!r} is not valid in a {type(self).__name__}")

    def _require_numbers(self, *names: str) -> None:
        for name in names:
            self._require(is_number(self.get(name)), name)

    def _require_texts(self, *names: str) -> None:
        for name in names:
            self._require(isinstance(self.get(name, ""), str), name)

    @property
    def format(self) -> int:
        """Format of the record."""
        return self["format"] if is_count(self.get("format")) else FIRST_FORMAT

    @property
    def step(self) -> int:
        """Number of training steps that were done."""
        return int(self["step"])

    @property
    def seconds(self) -> float | None:
        """Seconds of training so far; None if they are not known."""
        return self.number("seconds")

    def number(self, name: str) -> float | None:
        """Return the finite number of a key; None if there is none."""
        value = self.get(name)
        return value if is_number(value) else None

    def numbers(self) -> dict[str, float]:
        """Return the numbers that the record tells about its step, by key; they need not be finite."""
        return {
            name: value
            for name, value in self.items()
            if name not in ("format", "step")
            and isinstance(value, (int, float))
            and not isinstance(value, bool)
        }


class StepRecord(Record):
    """Training step: a line of metrics.jsonl."""

    KEYS = frozenset({"epoch", "lr", "loss", "seconds", "images_per_second", "memory_gb"})
    """Keys of numbers that are not terms of the loss."""

    @classmethod
    def of(cls, values: Mapping[str, Any], terms: Mapping[str, float], parts: Iterable[str]) -> Self:
        """Return the record of a step.

        Args:
            values: Step, epoch, learning rate, seconds, throughput, by key.
            terms: Loss, its parts, and other numbers of the objective; `values` take precedence.
            parts: Names of those terms that sum to the loss.
        """
        named = [name for name in parts if name not in values]
        return cls.new({**values, **terms, **values, "parts": named})

    def check(self) -> None:
        super().check()
        self._require_numbers("seconds")
        self._require_numbers(*({"images_per_second", "memory_gb"} & self.keys()))
        parts = self.get("parts", [])
        self._require(isinstance(parts, list) and all(isinstance(name, str) for name in parts), "parts")

    @property
    def loss(self) -> float | None:
        """Loss, if it is finite."""
        return self.number("loss")

    @property
    def images_per_second(self) -> float | None:
        """Throughput."""
        return self.number("images_per_second")

    @property
    def memory_gb(self) -> float | None:
        """Peak memory."""
        return self.number("memory_gb")

    @property
    def terms(self) -> dict[str, float]:
        """Parts of the loss and other numbers of the objective, by name."""
        return {
            name: value
            for name, value in self.numbers().items()
            if name not in self.KEYS and not name.startswith(MILLISECONDS_PREFIX)
        }

    @property
    def parts(self) -> dict[str, float]:
        """Terms that sum to the loss, by name."""
        names = self["parts"] if "parts" in self else self._parts_of_format_1()
        return {name: value for name in names if (value := self.number(name)) is not None}

    def _parts_of_format_1(self) -> list[str]:
        """Return the longest prefix of the terms that sums to the loss: parts came first, extras followed."""
        terms = {k: v for k, v in self.terms.items() if k != "effective_rank" and math.isfinite(v)}
        if self.loss is None:
            return []
        sums = [0.0, *itertools.accumulate(terms.values())]
        sizes = [0.0, *itertools.accumulate(map(abs, terms.values()))]
        fits = [i for i in range(len(sums)) if not i or abs(sums[i] - self.loss) <= ROUNDING * sizes[i]]
        return list(terms)[: max(fits)] if max(fits) > 1 else []

    @property
    def milliseconds(self) -> dict[str, float]:
        """Time of each part of the step."""
        return {
            name.removeprefix(MILLISECONDS_PREFIX): value
            for name, value in self.items()
            if name.startswith(MILLISECONDS_PREFIX) and is_number(value)
        }


class DiagnosticRecord(Record):
    """Diagnostics of a step: a line of diagnostics.jsonl.

    A record has diagnostics of the embeddings, online accuracies, numbers of a callback, or several of these.
    """

    EMBEDDING_KEYS = frozenset({"mean_loss", "weight_norm", "z_spread", "z_rank", "directions", "share"})
    """Keys that every record with diagnostics of the embeddings has."""
    ONLINE_KEYS = ("knn", "tested", "seconds")
    """Keys that every record of online kNN has."""
    SPECTRUM_SUFFIX = "_eigenvalues"

    def check(self) -> None:
        super().check()
        self._require_numbers(*(self.EMBEDDING_KEYS & self.keys()))
        self._require_numbers(*(self.ONLINE_KEYS if "knn" in self else ()))
        self._require_texts("verdict", "reason", "advice")
        for name, values in self.items():
            if name.endswith(self.SPECTRUM_SUFFIX):
                self._require(isinstance(values, list) and all(map(is_number, values)), name)

    @property
    def has_embeddings(self) -> bool:
        """Whether the record has diagnostics of the embeddings."""
        return self.keys() >= self.EMBEDDING_KEYS

    @property
    def knn(self) -> float | None:
        """Online kNN accuracy in percent."""
        return self.number("knn")

    @property
    def verdict(self) -> str | None:
        """Verdict on the run up to this step; None if the record has none."""
        return self.get("verdict")

    def eigenvalues(self, kind: str) -> list[float]:
        """Return the largest eigenvalues of `z` or `features`; empty if they were not recorded."""
        return list(self.get(f"{kind}{self.SPECTRUM_SUFFIX}", ()))

    def finite(self) -> Self:
        """Return the record without NaN and infinity, which JSON cannot hold."""
        return type(self)({k: v for k, v in self.items() if not isinstance(v, float) or math.isfinite(v)})


class EvaluationRecord(Record):
    """Accuracies of several encoders by one protocol: a line of evaluation.jsonl."""

    def check(self) -> None:
        super().check()
        self._require(isinstance(self.get("protocol"), str), "protocol")
        self._require_texts("data", "note", "split")
        percent, interval = self.get("percent"), self.get("interval", {})
        self._require(isinstance(percent, dict) and all(map(is_number, percent.values())), "percent")
        self._require(isinstance(interval, dict) and all(map(_is_interval, interval.values())), "interval")

    @property
    def protocol(self) -> str:
        """Name of the protocol with its settings, such as `kNN, k 20`."""
        return str(self["protocol"])

    @property
    def data(self) -> str:
        """Name of the data set; empty if it is not known."""
        return str(self.get("data", ""))

    @property
    def note(self) -> str:
        """Origin of the test images."""
        return str(self.get("note", ""))

    @property
    def split(self) -> str | None:
        """Kind of split of the images; None in format 1."""
        return self.get("split")

    @property
    def images(self) -> int | None:
        """Number of test images."""
        return self["images"] if is_count(self.get("images")) else None

    @property
    def percent(self) -> dict[str, float]:
        """Accuracy by row: `pixels`, `colors`, `untrained`, `trained`, other encoders."""
        return dict(self["percent"])

    @property
    def interval(self) -> dict[str, Interval]:
        """95% confidence interval of the accuracy, by row."""
        return _intervals(self.get("interval"))

    @property
    def difference_interval(self) -> dict[str, Interval]:
        """95% confidence interval of the difference of the trained network to each other row."""
        return _intervals(self.get("difference_interval"))


class Status(Record):
    """State of a run: status.json."""

    def check(self) -> None:
        super().check()
        self._require(self.get("state") in STATES, "state")
        self._require(is_count(self.get("total")), "total")
        self._require_texts("reason")
        verdict = self.get("verdict", {})
        texts = isinstance(verdict, dict) and all(isinstance(text, str) for text in verdict.values())
        self._require(texts, "verdict")

    @property
    def state(self) -> str:
        """State: `running`, `finished`, `stopped` or `failed`."""
        return str(self["state"])

    @property
    def total(self) -> int:
        """Number of steps of the whole run; 0 if it is not known yet."""
        return int(self["total"])

    @property
    def reason(self) -> str:
        """Reason for an early end; empty if there was none."""
        return str(self.get("reason", ""))

    @property
    def verdict(self) -> dict[str, str]:
        """Verdict on the run: `kind`, `reason`, `advice`, and notes."""
        return dict(self.get("verdict", {}))

    @property
    def closed(self) -> bool | None:
        """Whether a finished run has its final evaluation and report too; None in format 1."""
        return None if "closed" not in self else bool(self["closed"])


def training_seconds(*records: Iterable[Record]) -> float:
    """Return the seconds of training so far, from the records of steps and diagnostics."""
    return max((s for one in itertools.chain(*records) if (s := one.seconds) is not None), default=0.0)


def newest_evaluations(
    records: Iterable[EvaluationRecord], *, step: int | None = None, by_split: bool = False
) -> list[EvaluationRecord]:
    """Return the newest record of each protocol on each data set, oldest first.

    Args:
        records: Records of evaluation.jsonl, oldest first.
        step: Step whose encoder was evaluated; records of all steps if None.
        by_split: Also keep the newest record of each split of the images.
    """
    newest: dict[tuple[str, str, str | None], EvaluationRecord] = {}
    for record in records:
        if step is None or record.step == step:
            key = record.protocol, record.data, record.split if by_split else None
            newest.pop(key, None)
            newest[key] = record
    return list(newest.values())


def _is_interval(value: object) -> TypeGuard[Sequence[float]]:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_number, value))


def _intervals(stored: object) -> dict[str, Interval]:
    """Return the valid intervals by row."""
    table = stored if isinstance(stored, dict) else {}
    return {row: (value[0], value[1]) for row, value in table.items() if _is_interval(value)}
