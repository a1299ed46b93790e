"""Labels by id. Looked up in evaluation and watches only, never in a step."""

from __future__ import annotations

import hashlib
from collections import Counter
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


def held_out(labels: Tensor, *, copies: Tensor | None = None, share: float = 0.2) -> Tensor:
    """bool (N,): the same share of every class, chosen by a hash of the id, so the same in every run.

    copies: int64 (N,), equal for images that are exact copies of each other (`copies_within`); they are held
    out together, by the hash of the first of them, or not at all, so a class with copies may have some images
    more or fewer than its share. Without copies, it is the same images whether `copies` is given or not.
    """
    values, together = labels.tolist(), dict[int, list[int]]()
    for i, group in enumerate(range(len(values)) if copies is None else copies.tolist()):
        if values[i] >= 0:
            together.setdefault(group, []).append(i)
    left = {value: round(share * count) for value, count in Counter(values).items()}

    def rank(ids: list[int]) -> bytes:
        return hashlib.sha256(f"held out {ids[0]}".encode()).digest()

    found: list[int] = []
    for ids in sorted(together.values(), key=rank):
        counts = Counter(values[i] for i in ids)
        if all(count < 2 * left[value] for value, count in counts.items()):  # nearer to every share
            found += ids
            for value, count in counts.items():
                left[value] -= count
    chosen = torch.zeros(len(values), dtype=torch.bool)
    chosen[found] = True
    return chosen
