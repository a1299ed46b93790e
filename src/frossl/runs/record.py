"""JSON lines: records that are appended while a run lives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict, TypeGuard


class TextOptions(TypedDict):
    encoding: str
    errors: str


TEXT: TextOptions = {"encoding": "utf-8", "errors": "surrogateescape"}
"""How text files are written and read: paths may hold bytes that are not UTF-8."""

Record = dict[str, Any]


class JsonLines:
    """A file of one JSON object a line.

    Args:
        path: The file; it need not exist.
        fits: Whether a record is of the kind that its readers expect; others are left out.
    """

    def __init__(self, path: Path, fits: Callable[[Record], bool] | None = None) -> None:
        self.path, self.fits = path, fits or has_step

    def append(self, record: Record) -> None:
        """Write one line at the end. A torn last line that a killed process left is cut off first."""
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode(**TEXT)
        with self.path.open("a+b") as file:
            _cut_torn_line(file.fileno())
            file.write(line)

    def __iter__(self) -> Iterator[Record]:
        """Yield every whole record; lines that are torn or damaged are left out."""
        return (record for record in self._lines() if record is not None)

    @property
    def damaged(self) -> int:
        """How many lines cannot be read, a torn last one not counted."""
        return sum(record is None for record in self._lines())

    def _lines(self) -> Iterator[Record | None]:
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and line.strip():
                    yield self._parsed(line)

    def _parsed(self, line: bytes) -> Record | None:
        try:
            record = json.loads(line.decode(**TEXT))
        except (ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and self.fits(record) else None


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def is_number(value: object) -> bool:
    """A finite number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def has_step(record: Record) -> bool:
    return is_count(record.get("step"))


def is_metric(record: Record) -> bool:
    """A record of metrics.jsonl: a step, the seconds until then, and other plain values."""
    plain = all(isinstance(value, (str, int, float, type(None))) for value in record.values())
    numbers = all(is_number(record.get(name, 0)) for name in ("images_per_second", "memory_gb"))
    return has_step(record) and is_number(record.get("seconds")) and numbers and plain


LOOK = frozenset({"mean_loss", "weight_norm", "z_spread", "z_rank", "directions", "share"})
"""What is known of embeddings whenever they are looked at."""

ONLINE = ("knn", "tested", "seconds")
"""What is known whenever neighbours are asked while a run trains."""


def is_diagnostic(record: Record) -> bool:
    """A record of diagnostics.jsonl: a step and what was found out at it."""
    needed = (*(LOOK & record.keys()), *(ONLINE if "knn" in record else ()))
    spectra = (value for name, value in record.items() if name.endswith("_eigenvalues"))
    return (
        has_step(record)
        and all(is_number(record.get(name)) for name in needed)
        and all(isinstance(values, list) and all(map(is_number, values)) for values in spectra)
        and all(isinstance(record.get(name, ""), str) for name in ("verdict", "reason", "advice"))
    )


def is_evaluation(record: Record) -> bool:
    """A record of evaluation.jsonl: percents, and intervals, by row, of a protocol on a data set."""
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


def _cut_torn_line(handle: int, block: int = 4096) -> None:
    """Shorten a file to the end of its last whole line."""
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
