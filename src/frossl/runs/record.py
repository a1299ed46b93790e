"""Records of a run in JSON lines, which are appended while it trains."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict, TypeGuard


class TextOptions(TypedDict):
    """Arguments for encoding and decoding text."""

    encoding: str
    errors: str


TEXT: TextOptions = {"encoding": "utf-8", "errors": "surrogateescape"}
"""Encoding of all text files; paths may hold bytes that are not UTF-8."""

Record = dict[str, Any]


class JsonLines:
    """File with one JSON object, a record, on each line.

    Args:
        path: The file; it need not exist.
        fits: Function that returns whether a record is valid; others are skipped when the file is read. By
            default a record needs a `step`.
    """

    def __init__(self, path: Path, fits: Callable[[Record], bool] | None = None) -> None:
        self.path, self.fits = path, fits or has_step

    def append(self, record: Record) -> None:
        """Append a record. An incomplete last line that a killed process left is removed first."""
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode(**TEXT)
        with self.path.open("a+b") as file:
            _remove_incomplete_line(file.fileno())
            file.write(line)

    def __iter__(self) -> Iterator[Record]:
        """Yield every valid record; incomplete and damaged lines are skipped."""
        return (record for record in self._lines() if record is not None)

    @property
    def damaged(self) -> int:
        """Number of lines that are not valid records; an incomplete last line does not count."""
        return sum(record is None for record in self._lines())

    def _lines(self) -> Iterator[Record | None]:
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and line.strip():
                    yield self._parse(line)

    def _parse(self, line: bytes) -> Record | None:
        try:
            record = json.loads(line.decode(**TEXT))
        except (ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and self.fits(record) else None


def is_count(value: object) -> TypeGuard[int]:
    """Return whether `value` is an int from 0 to 2⁵³ − 1; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a finite number; a bool is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def has_step(record: Record) -> bool:
    """Return whether a record has a valid `step`."""
    return is_count(record.get("step"))


def is_metric(record: Record) -> bool:
    """Return whether a record is valid in metrics.jsonl: a step, the seconds so far, other plain values."""
    plain = all(isinstance(value, (str, int, float, type(None))) for value in record.values())
    numbers = all(is_number(record.get(name, 0)) for name in ("images_per_second", "memory_gb"))
    return has_step(record) and is_number(record.get("seconds")) and numbers and plain


DIAGNOSTIC_KEYS = frozenset({"mean_loss", "weight_norm", "z_spread", "z_rank", "directions", "share"})
"""Keys that every record with diagnostics of the embeddings has."""

ONLINE_KNN_KEYS = ("knn", "tested", "seconds")
"""Keys that every record of online kNN has."""


def is_diagnostic(record: Record) -> bool:
    """Return whether a record is valid in diagnostics.jsonl: a step and its diagnostics."""
    needed = (*(DIAGNOSTIC_KEYS & record.keys()), *(ONLINE_KNN_KEYS if "knn" in record else ()))
    spectra = (value for name, value in record.items() if name.endswith("_eigenvalues"))
    return (
        has_step(record)
        and all(is_number(record.get(name)) for name in needed)
        and all(isinstance(values, list) and all(map(is_number, values)) for values in spectra)
        and all(isinstance(record.get(name, ""), str) for name in ("verdict", "reason", "advice"))
    )


def is_evaluation(record: Record) -> bool:
    """Return whether a record is valid in evaluation.jsonl: accuracies in percent and their intervals, by
    row, of a protocol on a data set."""
    percent, interval = record.get("percent"), record.get("interval", {})
    return (
        has_step(record)
        and isinstance(record.get("protocol"), str)
        and all(isinstance(record.get(name, ""), str) for name in ("data", "note", "split"))
        and isinstance(percent, dict)
        and all(map(is_number, percent.values()))
        and isinstance(interval, dict)
        and all(map(_is_interval, interval.values()))
    )


def _is_interval(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_number, value))


def _remove_incomplete_line(handle: int, block: int = 4096) -> None:
    """Truncate a file to the end of its last complete line; it is searched backwards in blocks of bytes."""
    size = end = os.lseek(handle, 0, os.SEEK_END)
    while end > 0:
        start = max(0, end - block)
        os.lseek(handle, start, os.SEEK_SET)
        newline = os.read(handle, end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.truncate(handle, end)
    os.lseek(handle, 0, os.SEEK_END)
