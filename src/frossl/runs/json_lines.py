"""JSON Lines files, which are appended to while a run trains; one tolerant reader for all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

from frossl.runs.records import Record


class TextOptions(TypedDict):
    """Arguments for encoding and decoding text."""

    encoding: str
    errors: str


TEXT: TextOptions = {"encoding": "utf-8", "errors": "surrogateescape"}
"""Encoding of all text files; paths may hold bytes that are not UTF-8."""

R = TypeVar("R", bound=Record)


class JsonLines(Generic[R]):
    """File with one JSON object, a record, on each line.

    Args:
        path: The file; it need not exist.
        kind: Type of its records.
    """

    def __init__(self, path: Path, kind: type[R]) -> None:
        self.path, self.kind = path, kind

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record. An incomplete last line that a killed process left is removed first."""
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode(**TEXT)
        with self.path.open("a+b") as file:
            _remove_incomplete_line(file.fileno())
            file.write(line)

    def __iter__(self) -> Iterator[R]:
        """Yield every valid record; incomplete and damaged lines are skipped."""
        return (record for _, record in self._lines() if record is not None)

    @property
    def damaged(self) -> int:
        """Number of lines that are not valid records; an incomplete last line does not count."""
        return sum(record is None for _, record in self._lines())

    def lines(self, keep: Callable[[R], bool]) -> str:
        """Return the lines of the valid records that are to be kept, as they are in the file."""
        return "".join(
            line.decode(**TEXT) for line, record in self._lines() if record is not None and keep(record)
        )

    def parse(self, line: bytes) -> R | None:
        """Return the record on a line; None if the line is damaged."""
        try:
            stored = json.loads(line.decode(**TEXT))
            return self.kind.parse(stored) if isinstance(stored, dict) else None
        except (ValueError, RecursionError):
            return None

    def _lines(self) -> Iterator[tuple[bytes, R | None]]:
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and line.strip():
                    yield line, self.parse(line)


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
