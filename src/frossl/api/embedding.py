"""What an encoder makes of images, in a file; and which of them are near each other, or near none."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import frossl.engine as engine
from frossl.api.shared import console_of, data_of, opened, say
from frossl.artifacts import load_encoder
from frossl.artifacts.computing import compute_blocks
from frossl.artifacts.embedding import Bench, Block, Done, Images, Job, fingerprint
from frossl.artifacts.neighbors import check_search, find_neighbors
from frossl.artifacts.partial import About, Partial
from frossl.artifacts.tables import Rows, format_of, write_lines, write_names
from frossl.config import Config, Data, Device
from frossl.errors import InputError
from frossl.live import Counting
from frossl.runs import RunFolder
from frossl.runs.machine import cores

CHUNK = 4096
"""Rows that are written at a time: a group of rows of Parquet."""


@dataclass(frozen=True)
class Embedded:
    """The features of all images of some data, in a file."""

    path: Path
    images: int
    features: int
    """How many each image has."""
    seconds: float
    """Of this start, all in all."""
    rate: float
    """Images a second while features were computed."""
    kept: int
    """Images that an earlier start, which was ended, had done."""
    unreadable: dict[str, str]
    """Files and folders that could not be read, with the reason. A file keeps its row, without features."""
    beside: dict[str, Path]
    """Other files that were written, by kind: `names`, `duplicates`, `outliers`."""
    pairs: int | None = None
    """Of near-duplicates, if they were asked for."""
    groups: int | None = None
    """That these make."""

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "seconds": round(self.seconds, 2),
            "rate": round(self.rate, 1),
            "beside": {kind: str(path) for kind, path in self.beside.items()},
        }


def embed(
    run: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path,
    root: str | Path | None = None,
    batch_size: int | None = None,
    processes: int = 1,
    duplicates: float | None = None,
    outliers: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Embedded:
    """Write the features of every image, with its name: by a run's encoder (or one that was exported), of any
    data, all parts of it, or of the run's own (but for what `--test` had named).

    out: `.parquet` (name, label, features), `.csv` (name, label, f0, f1, …) or `.npy`, with the names in
    `.names.jsonl` beside it. What was ended, even by a kill, goes on with the same call, to the same bytes.
    root: the folder of a data set that has a name. batch_size: by the size of the images, if not given.
    processes: so many, of one thread each; one takes as many threads as torch has.
    duplicates: list pairs of images at or above this cosine in `.duplicates.csv`. outliers: list so many
    that are farthest from their nearest others in `.outliers.csv`. overwrite: replace a file that is there.
    """
    began, path, console = time.monotonic(), Path(os.path.expanduser(out)), console_of(quiet)
    run = os.path.expanduser(run)
    write = format_of(path)
    _check_numbers(batch_size=batch_size, processes=processes, outliers=outliers)
    if duplicates is not None and not 0 < duplicates <= 1:
        raise InputError(f"duplicates = {duplicates:g}; give a cosine above 0 and up to 1")
    beside = _beside(path, duplicates is not None, outliers is not None)
    _check_free([path, *beside.values()], overwrite=overwrite or Partial.begun(path))
    encoder = load_encoder(run)
    given = _data(run, data, root, encoder.size)
    images = Images(opened(Config(data=given), console, keep=False))
    images.check_channels(encoder)
    if duplicates is not None or outliers is not None:
        check_search(len(images))
    closed, device = images.closed(), engine.best_device()
    batch_size = batch_size or _batch_size(encoder.size, device)
    about = About(images.digest, fingerprint(encoder), len(images), encoder.num_features, batch_size, device)
    with Partial.open(path, about, overwrite=overwrite) as partial:
        workers = max(1, int(cores().usable) // processes) if processes > 1 else given.workers
        job = Job(
            encoder=str(run),
            data=replace(given, workers=workers),
            images=about.images,
            weights=about.weights,
            features=str(partial.features),
            device=device,
            batch_size=batch_size,
        )
        bench, blocks = Bench(job, images, encoder, device=device), images.blocks(batch_size)
        done, kept, rate = _computed(bench, partial, blocks, processes, console)
        bad = {int(row): why for one in done.values() for row, why in one.unreadable.items()}
        found = _searched(partial, images, bad, beside, duplicates, outliers, console)
        if "names" in beside:
            partial.deliver(beside["names"], lambda file: write_names(file, _rows(images, partial)))
        shape = (about.count, about.features)
        partial.deliver(path, lambda file: write(file, _rows(images, partial), shape))
        partial.remove()
    unreadable = closed | {images.name(row): bad[row] for row in sorted(bad)}
    seconds = time.monotonic() - began
    return Embedded(path, *shape, seconds, rate, kept, unreadable, beside, **found)


def _check_numbers(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise InputError(f"{name} = {number}; give at least 1")


def _beside(path: Path, duplicates: bool, outliers: bool) -> dict[str, Path]:
    wanted = {
        "names": (path.suffix.lower() == ".npy", ".names.jsonl"),
        "duplicates": (duplicates, ".duplicates.csv"),
        "outliers": (outliers, ".outliers.csv"),
    }
    return {kind: path.with_suffix(ending) for kind, (asked, ending) in wanted.items() if asked}


def _check_free(paths: list[Path], *, overwrite: bool) -> None:
    if not paths[0].parent.is_dir():
        raise InputError(f"there is no folder {paths[0].parent}; make it, or choose another --out")
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path} is a folder; choose another --out")
        if path.exists() and not overwrite:
            raise InputError(f"{path} is already there; choose another --out, or replace it with --overwrite")


def _data(run: str | Path, data: str | Path | None, root: str | Path | None, size: int) -> Data:
    """Everything that was named, or that the run's own data hold. Any number of files may be unreadable:
    each is named."""
    known = Data(size=size, max_bad=1.0)
    if data is not None:
        return data_of(known, data, root=root)
    if root is not None:
        raise InputError("root is the folder of other data; give its name, too")
    if not Path(run).is_dir():
        raise InputError(f"{run} is no run and has no images of its own; name some after it")
    own = Config.read(RunFolder.open(run).config_file).data
    return replace(known, source=own.source, root=own.root, labels=own.labels, workers=own.workers)


def _batch_size(size: int, device: Device) -> int:
    """On a CPU, what stays in its caches."""
    return 256 if device != "cpu" else max(8, min(64, 64 * 64**2 // size**2))


def _computed(
    bench: Bench, partial: Partial, blocks: list[Block], processes: int, console: Console
) -> tuple[dict[int, Done], int, float]:
    """All blocks, how many images were there already, and how many came in a second."""
    done, total = partial.done(blocks), len(bench.images)
    left = [block for block in blocks if block.number not in done]
    kept = total - sum(block.count for block in left)
    if kept:
        say(console, f"{kept:,} of {total:,} images were done by an earlier start")
    began, now = time.monotonic(), kept
    with Counting(console, f"embedding {bench.job.data.source}") as counting:
        counting.update(now, total)

        def remember(one: Done) -> None:
            nonlocal now
            partial.remember(one)
            done[one.block] = one
            now += blocks[one.block].count
            counting.update(now, total)

        compute_blocks(bench, left, processes=processes, done=remember)
    return done, kept, (total - kept) / max(1e-9, time.monotonic() - began)


def _rows(images: Images, partial: Partial) -> Iterator[Rows]:
    for start in range(0, len(images), CHUNK):
        rows = range(start, min(start + CHUNK, len(images)))
        features = partial.read(start, rows.stop)
        yield Rows([images.name(row) for row in rows], [images.label(row) for row in rows], features)


def _searched(
    partial: Partial,
    images: Images,
    bad: Collection[int],
    beside: dict[str, Path],
    duplicates: float | None,
    outliers: int | None,
    console: Console,
) -> dict[str, int]:
    """Near-duplicates and outliers, as far as they were asked for, and how many there are of the first."""
    if duplicates is None and outliers is None:
        return {}
    with Counting(console, "comparing images") as counting:
        found = find_neighbors(
            partial.read,
            len(images),
            threshold=duplicates,
            nearest=outliers is not None,
            missing=bad,
            progress=counting.update,
        )
    counts: dict[str, int] = {}
    if duplicates is not None:
        groups = found.groups()
        counts = {"pairs": len(groups), "groups": int(groups.max(initial=0))}
        pairs = zip(found.pairs.tolist(), found.cosines.tolist(), groups.tolist(), strict=True)
        lines = ((images.name(a), images.name(b), f"{near:.6f}", group) for (a, b), near, group in pairs)
        _deliver(partial, beside["duplicates"], ("name", "other", "cosine", "group"), lines)
    if outliers is not None:
        order = (-found.distances).argsort()[: min(outliers, int((~np.isnan(found.distances)).sum()))]
        rows = ((images.name(row), f"{found.distances[row]:.6f}") for row in order.tolist())
        _deliver(partial, beside["outliers"], ("name", "distance"), rows)
    return counts


def _deliver(partial: Partial, path: Path, titles: tuple[str, ...], lines: Iterator[tuple[Any, ...]]) -> None:
    partial.deliver(path, lambda file: write_lines(file, chain([titles], lines)))
