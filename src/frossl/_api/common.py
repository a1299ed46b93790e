"""Helpers that several public functions share: data, consoles and checks of a run."""

from __future__ import annotations

import hashlib
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from frossl.config import Config, Data
from frossl.data import LARGEST, NAMED, Dataset, Names, Source, open_dataset
from frossl.errors import InputError
from frossl.live import NonBlockingConsole
from frossl.options import absolute, absolute_source
from frossl.runs import RunFolder

T = TypeVar("T")


MAX_STORED_SIZE = {"cpu": 128, "cuda": 256, "mps": 256}
"""Default upper limit on the side of stored images in pixels, by device: what the device can afford."""


def open_data(config: Config, console: Console, *, largest: int = LARGEST, keep: bool = True) -> Dataset:
    """Open the data set of a configuration.

    While a folder is indexed for the first time, the console shows how many files were found.

    Args:
        config: Configuration whose `data` is opened.
        console: Console for the status line.
        largest: Upper limit on the shorter side of stored images in pixels, if `config.data.size` is None.
        keep: Whether decoded images stay in memory; False is for reading every image once.
    """
    data = config.data
    with console.status(Text(f"opening {data.source}")) as status:

        def show_count(count: int) -> None:
            status.update(Text(f"indexing {data.source}: {count:,} files"))

        return open_dataset(**data.opening(), largest=largest, keep=keep, found=show_count)


def check_same_images(config: Config, folder: RunFolder, dataset: Dataset) -> None:
    """Raise `InputError` unless the images are those that the run was started with."""
    known, source = folder.provenance(), dataset.train.source
    if source.digest != known["index_digest"]:
        raise InputError(
            f"{config.data.source} holds other images than this run was started with ({len(source)} now, "
            f"{known['images']} then{_describe_changes(folder, source)}); put them back, or start a new run"
        )


def _describe_changes(folder: RunFolder, source: Source) -> str:
    """Return which files were added and removed since the run was started; empty if that is not known."""
    if source.names is None or not folder.index.is_file():
        return ""
    try:
        now, then = set(source.names), set(Names.read(folder.index))
    except (OSError, ValueError):  # the index of the run is missing or damaged
        return ""
    changes = [
        f"{len(names)} {how}, such as {min(names)!r}"
        for how, names in (("new", now - then), ("gone", then - now))
        if names
    ]
    return ": " + "; ".join(changes or ["the same names, of other sizes"])


def file_digest(file: str | None) -> str | None:
    """Return the SHA-256 of a file in hex; None for None."""
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def check_weights(config: Config, known: dict[str, Any]) -> None:
    """Raise `InputError` if the file of initial weights is missing or has changed since the run was started.

    Args:
        config: Configuration of the run.
        known: Provenance of the run, with the digest of the file.
    """
    file = config.network.weights
    if file is not None and (not Path(file).is_file() or file_digest(file) != known.get("weights_digest")):
        raise InputError(f"this run was started from {file}, which is missing or has changed; put it back")


def data_config(config: Data, source: str | Path, *, root: str | Path | None = None, **values: Any) -> Data:
    """Return `config` with another source, and those of the other values that are not None.

    Paths become absolute, so that the run finds its images from any working directory.
    """
    root = None if root is None else absolute(root)
    return replace_given(config, source=absolute_source(source, NAMED), root=root, **values)


def replace_given(part: T, **values: Any) -> T:
    """Return a copy of a dataclass with those of the values that are not None."""
    return replace(part, **{name: value for name, value in values.items() if value is not None})  # type: ignore[type-var]


def make_console(quiet: bool) -> Console:
    """Return a console on standard error; one that prints nothing if `quiet`."""
    return NonBlockingConsole(stderr=True, quiet=quiet)


def print_lines(console: Console, *lines: str) -> None:
    """Print lines as plain text, without wrapping: paths may hold what rich would take for markup."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def warn_renamed(old: str, new: str) -> None:
    """Warn that a keyword argument has a new name, at the line outside of frossl that gave it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("frossl."):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{old}= is now {new}=", DeprecationWarning, stacklevel=level)
