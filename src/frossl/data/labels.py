"""Labels by id. They are used in evaluation and online diagnostics, never in the loss."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Labels:
    """Labels of images, and the names of their classes."""

    values: Tensor
    """Class number of each image, int64 (N,); −1 for none."""
    names: tuple[str, ...]
    """Names of the classes, by number."""


def named_labels(given: Sequence[str | None], names: Sequence[str] | None = None) -> Labels | None:
    """Build labels from the class name of each image.

    Args:
        given: Class name of each image; None if it has none.
        names: Names of all classes, if they are known; by default those that occur, sorted.

    Returns:
        The labels; None if there are fewer than two classes, or no image has one of them.
    """
    found = {name for name in given if name is not None}
    known = tuple(names or sorted(found))
    if len(known) < 2 or not found & set(known):
        return None
    number = {name: i for i, name in enumerate(known)}
    return Labels(torch.tensor([-1 if name is None else number.get(name, -1) for name in given]), known)


def class_folder_labels(paths: Sequence[str], names: Sequence[str] | None = None) -> Labels | None:
    """Build labels from class folders: the first folder of each path that is not common to all paths.

    Args:
        paths: Relative path of each image.
        names: Names of all classes, if they are known.
    """
    start, known = 0, set(names or ())
    ends = (end(paths, default="").split("/")[:-1] for end in (min, max))
    for folder, last in zip(
        *ends, strict=False
    ):  # folders common to the first and the last path are common to all
        if folder != last or folder in known:
            break
        start += len(folder) + 1
    tops = [path[start : path.index("/", start)] if "/" in path[start:] else None for path in paths]
    return named_labels(tops, names)


def stratified(labels: Tensor | None, images: int, *, fraction: float, seed: int) -> Tensor:
    """Return a stratified sample of ids: the same fraction of every class, at least one image of each.

    Args:
        labels: Class number of each image, int64 (N,); images with −1 form a class. None for one class.
        images: Number of images, N.
        fraction: Share of the images.
        seed: Seed that selects the images.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.zeros(images, dtype=torch.int64) if labels is None else labels
    chosen = []
    for value in values.unique():
        ids = (values == value).nonzero()[:, 0]
        order = torch.randperm(len(ids), generator=generator)
        chosen.append(ids[order[: max(1, round(fraction * len(ids)))]])
    return torch.cat(chosen).sort().values


def held_out(labels: Tensor, *, copies: Tensor | None = None, share: float = 0.2) -> Tensor:
    """Select the same share of every class, by a hash of the id, so that every run selects the same images.

    Args:
        labels: Class number of each image, int64 (N,); images with −1 are never selected.
        copies: Group number of each image, int64 (N,), equal for exact copies (`copies_within`). Copies are
            held out together, by the hash of the first of them, or not at all, so a class with copies may
            have some images more or fewer than its share. If there are no copies, the result is the same as
            without this argument.
        share: Share of every class.

    Returns:
        Mask, bool (N,): True for images that are held out.
    """
    values, groups = labels.tolist(), dict[int, list[int]]()
    for i, group in enumerate(range(len(values)) if copies is None else copies.tolist()):
        if values[i] >= 0:
            groups.setdefault(group, []).append(i)
    left = {value: round(share * count) for value, count in Counter(values).items()}

    def rank(ids: list[int]) -> bytes:
        return hashlib.sha256(f"held out {ids[0]}".encode()).digest()

    found: list[int] = []
    for ids in sorted(groups.values(), key=rank):
        counts = Counter(values[i] for i in ids)
        if all(
            count < 2 * left[value] for value, count in counts.items()
        ):  # brings every class nearer to its share
            found += ids
            for value, count in counts.items():
                left[value] -= count
    chosen = torch.zeros(len(values), dtype=torch.bool)
    chosen[found] = True
    return chosen
