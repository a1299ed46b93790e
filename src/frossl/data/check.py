"""Look through data before a long run: what cannot be read, and what is there twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

from frossl.data.dataset import Dataset
from frossl.data.digests import content_digest
from frossl.data.sources import Source
from frossl.errors import TrainingError

BLOCK = 256


@dataclass(frozen=True)
class Findings:
    """Of a data set that was looked through."""

    images: int
    test_images: int
    size: int
    classes: tuple[str, ...]
    bad_files: dict[str, str]
    """With the reason; those to be tested on as `test: NAME`."""
    copies: int
    """Images to learn from that are, byte for byte, the same as an earlier one."""
    crossing: tuple[tuple[str, str], ...]
    """An image to learn from and one to be tested on that are the same."""


def look_through(data: Dataset, *, progress: Callable[[int, int], None] | None = None) -> Findings:
    """Decode every image, and compare their contents."""
    train, test = data.train.source, data.test.source if data.test is not None else None
    total = len(train) + (len(test) if test is not None else 0)

    def told(done: int) -> None:
        if progress is not None:
            progress(done, total)

    first: dict[bytes, int] = {}
    known = _contents(train, told)
    for i, content in known.items():
        first.setdefault(content, i)
    held = _contents(test, lambda done: told(len(train) + done)) if test is not None else {}
    bad_test = test.bad_files() if test is not None else {}
    crossing = [(first[content], i) for i, content in held.items() if content in first]
    return Findings(
        images=len(train),
        test_images=total - len(train),
        size=data.size,
        classes=data.train.labels.names if data.train.labels is not None else (),
        bad_files=train.bad_files() | {f"test: {name}": why for name, why in bad_test.items()},
        copies=len(known) - len(first),
        crossing=tuple((train.name(a), test.name(b)) for a, b in crossing) if test is not None else (),
    )


def _contents(source: Source, told: Callable[[int], None]) -> dict[int, bytes]:
    """A hash of every image that can be decoded, by id."""
    found: dict[int, bytes] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for start in range(0, len(source), BLOCK):
            ids = torch.arange(start, min(start + BLOCK, len(source)))
            try:
                good = ids[source.read(ids).ids == ids].tolist()
            except TrainingError:  # not one of all files is left to stand in
                good = []
            hashes = zip(good, pool.map(partial(content_digest, source), good), strict=True)
            found |= {id: hashed for id, hashed in hashes if hashed is not None}
            told(start + len(ids))
    return found
