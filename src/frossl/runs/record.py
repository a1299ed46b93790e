"""JSON lines: appended while a run lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict


class TextOptions(TypedDict):
    encoding: str
    errors: str


TEXT: TextOptions = {"encoding": "utf-8", "errors": "surrogateescape"}
"""How text files are written and read: paths may hold bytes that are not UTF-8."""


class JsonLines:
    """A file of one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        with self.path.open("a", **TEXT) as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every whole record; a torn last line, from a process that was killed, is left out."""
        if not self.path.is_file():
            return
        with self.path.open(**TEXT) as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)

    def up_to(self, step: int) -> list[dict[str, Any]]:
        return [record for record in self if record.get("step", 0) <= step]
