"""Check a data set before a long run: unreadable files and duplicate images."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

from frossl.data.dataset import Dataset
from frossl.data.digests import content_digest
from frossl.data.sources import Source
from frossl.errors import TrainingError
from frossl.machine import cores

BLOCK_SIZE = 256
"""Number of images that are decoded at a time."""


@dataclass(frozen=True)
class DataReport:
    """Result of checking a data set."""

    images: int
    """Number of training images."""
    test_images: int
    """Number of test images."""
    size: int
    """Pixels along each side of the decoded images."""
    classes: tuple[str, ...]
    """Names of the classes; empty if there are no labels."""
    bad_files: dict[str, str]
    """Unreadable files with the reason; names of the test split begin with `test: `."""
    copies: int
    """Number of training images that are exact copies of an earlier one."""
    crossing: tuple[tuple[str, str], ...]
    """Pairs of a training image and a test image that are exact copies."""


def check_dataset(data: Dataset, *, progress: Callable[[int, int], None] | None = None) -> DataReport:
    """Decode every image and find exact copies.

    Args:
        data: The data set.
        progress: Callback that receives the numbers of images done and of all images.
    """
    train, test = data.train.source, data.test.source if data.test is not None else None
    total = len(train) + (len(test) if test is not None else 0)

    def report(done: int) -> None:
        if progress is not None:
            progress(done, total)

    first: dict[bytes, int] = {}
    train_digests = _digests(train, report)
    for i, digest in train_digests.items():
        first.setdefault(digest, i)
    test_digests = _digests(test, lambda done: report(len(train) + done)) if test is not None else {}
    bad_test = test.bad_files() if test is not None else {}
    crossing = [(first[digest], i) for i, digest in test_digests.items() if digest in first]
    return DataReport(
        images=len(train),
        test_images=total - len(train),
        size=data.size,
        classes=data.train.labels.names if data.train.labels is not None else (),
        bad_files=train.bad_files() | {f"test: {name}": why for name, why in bad_test.items()},
        copies=len(train_digests) - len(first),
        crossing=tuple((train.name(a), test.name(b)) for a, b in crossing) if test is not None else (),
    )


def _digests(source: Source, report: Callable[[int], None]) -> dict[int, bytes]:
    """Return the content digest of every image that can be decoded, by id."""
    found: dict[int, bytes] = {}
    with ThreadPoolExecutor(cores().workers) as pool:
        for start in range(0, len(source), BLOCK_SIZE):
            ids = torch.arange(start, min(start + BLOCK_SIZE, len(source)))
            try:
                good = ids[source.read(ids).ids == ids].tolist()
            except TrainingError:  # no readable file is left that could replace a bad one
                good = []
            digests = zip(good, pool.map(partial(content_digest, source), good), strict=True)
            found |= {id: digest for id, digest in digests if digest is not None}
            report(start + len(ids))
    return found
