"""Labels by id. Looked up in evaluation and watches only, never in a step."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Labels:
    """int64 (N,), −1 = none, and the names of the classes."""

    values: Tensor
    names: tuple[str, ...]


def named_labels(given: Sequence[str | None], names: Sequence[str] | None = None) -> Labels | None:
    """Labels by the names of their classes; None unless there are at least two, and one of them is given.

    names: those of the classes, where they are known already.
    """
    found = {name for name in given if name is not None}
    known = tuple(names or sorted(found))
    if len(known) < 2 or not found & set(known):
        return None
    number = {name: i for i, name in enumerate(known)}
    return Labels(torch.tensor([-1 if name is None else number.get(name, -1) for name in given]), known)


def class_folder_labels(paths: Sequence[str], names: Sequence[str] | None = None) -> Labels | None:
    """The first folder of each relative path as its class; where all lie in one, the next."""
    start, known = 0, set(names or ())
    ends = (end(paths, default="").split("/")[:-1] for end in (min, max))
    for folder, last in zip(*ends, strict=False):  # what these two lie in, all between them lie in
        if folder != last or folder in known:
            break
        start += len(folder) + 1
    tops = [path[start : path.index("/", start)] if "/" in path[start:] else None for path in paths]
    return named_labels(tops, names)


def stratified(labels: Tensor | None, images: int, *, fraction: float, seed: int) -> Tensor:
    """Ids of a fraction of the images, of every class alike (the unlabelled are a class), at least one."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.zeros(images, dtype=torch.int64) if labels is None else labels
    chosen = []
    for value in values.unique():
        ids = (values == value).nonzero()[:, 0]
        among = torch.randperm(len(ids), generator=generator)
        chosen.append(ids[among[: max(1, round(fraction * len(ids)))]])
    return torch.cat(chosen).sort().values


def held_out(labels: Tensor, *, share: float = 0.2) -> Tensor:
    """bool (N,): the same share of every class, chosen by a hash of the id, so the same in every run."""

    def rank(i: int) -> bytes:
        return hashlib.sha256(f"held out {i}".encode()).digest()

    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for value in labels.unique().tolist():
        if value >= 0:
            ids = sorted((labels == value).nonzero()[:, 0].tolist(), key=rank)
            chosen[ids[: round(share * len(ids))]] = True
    return chosen
