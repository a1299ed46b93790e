"""What several verbs need: data and consoles of a run."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from frossl.config import Config, Data
from frossl.data import LARGEST, NAMED, Dataset, Names, Source, open_dataset
from frossl.errors import InputError
from frossl.live import Patient
from frossl.runs import RunFolder

T = TypeVar("T")


LARGEST_STORED = {"cpu": 128, "cuda": 256, "mps": 256}
"""Pixels along the side of stored images where none are asked for: what the device can afford."""


def opened(config: Config, console: Console, *, largest: int = LARGEST, keep: bool = True) -> Dataset:
    """The images, with a word of how many files there are while a folder is indexed for the first time."""
    data = config.data
    with console.status(Text(f"opening {data.source}")) as status:

        def found(count: int) -> None:
            status.update(Text(f"indexing {data.source}: {count:,} files"))

        return open_dataset(**vars(data), largest=largest, keep=keep, found=found)


def check_same(config: Config, folder: RunFolder, dataset: Dataset) -> None:
    """The images must be those that the run began with."""
    known, source = folder.read_json("provenance.json"), dataset.train.source
    if source.digest != known["index_digest"]:
        raise InputError(
            f"{config.data.source} holds other images than this run began with ({len(source)} now, "
            f"{known['images']} then{_changes(folder, source)}); put them back, or start a new run"
        )


def _changes(folder: RunFolder, source: Source) -> str:
    """Which files came and went since the run began."""
    if source.names is None or not folder.index.is_file():
        return ""
    now, then = set(source.names), set(Names.read(folder.index))
    said = [
        f"{len(names)} {how}, such as {min(names)!r}"
        for how, names in (("new", now - then), ("gone", then - now))
        if names
    ]
    return ": " + "; ".join(said or ["the same names, of other sizes"])


def digest(weights: str | None) -> str | None:
    return None if weights is None else hashlib.sha256(Path(weights).read_bytes()).hexdigest()


def check_weights(config: Config, known: dict[str, Any]) -> None:
    """The file that a run began with must still be that file, where it is read again."""
    file = config.network.weights
    if file is not None and (not Path(file).is_file() or digest(file) != known.get("weights_digest")):
        raise InputError(f"this run began from {file}, which is gone or changed; put it back")


def data_of(config: Data, source: str | Path, **values: Any) -> Data:
    """Paths are made absolute: a run must find its images again from anywhere."""
    for name in ("root", "labels"):
        if values.get(name) is not None:
            values[name] = str(Path(os.path.expanduser(values[name])).absolute())
    if values.get("test") is not None:
        values["test"] = _absolute(values["test"])
    return given(config, source=_absolute(source), **values)


def _absolute(source: str | Path) -> str:
    """A path, if it is one and not the name of a data set."""
    path, name = Path(os.path.expanduser(source)), str(source)
    return str(path.absolute()) if name.strip() and name not in NAMED and path.exists() else name


def given(part: T, **values: Any) -> T:
    """The dataclass with those of the values that were given."""
    return replace(part, **{name: value for name, value in values.items() if value is not None})  # type: ignore[type-var]


def console_of(quiet: bool) -> Console:
    return Patient(stderr=True, quiet=quiet)


def say(console: Console, *lines: str) -> None:
    """Plain text: a path may hold what rich takes for markup, and must not be broken."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
