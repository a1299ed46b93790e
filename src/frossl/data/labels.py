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


def class_folder_labels(paths: Sequence[str], names: Sequence[str] | None = None) -> Labels | None:
    """The first folder of each relative path as its class; None unless there are at least two classes."""
    classes = [path.partition("/")[0] if "/" in path else None for path in paths]
    known = tuple(names or sorted({name for name in classes if name is not None}))
    if len(known) < 2:
        return None
    number = {name: i for i, name in enumerate(known)}
    return Labels(torch.tensor([number.get(name, -1) if name else -1 for name in classes]), known)


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
