"""Which checkpoint of a run is best?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

import frossl.engine as engine
from frossl.api.measuring import K
from frossl.api.shared import check_same, console_of, opened
from frossl.api.subject import encoder_at, measuring_device
from frossl.config import Config
from frossl.diagnostics import effective_rank, eigenvalues, rankme
from frossl.errors import InputError
from frossl.evaluation import (
    Labelled,
    Score,
    extract,
    knn_accuracy,
    labelled_split,
)
from frossl.runs import RunFolder


@dataclass(frozen=True)
class Saved:
    """A checkpoint, measured."""

    step: int
    rank: float
    """Effective rank of the features of unaugmented images."""
    rankme: float
    knn: Score
    """Of no image, where there are no labels."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, oldest first, and which is best: by labels, and without."""

    saved: tuple[Saved, ...]
    labelled: bool

    @property
    def best_by_labels(self) -> Saved | None:
        return max(self.saved, key=lambda s: s.knn.percent) if self.labelled else None

    @property
    def best_without(self) -> Saved:
        return max(self.saved, key=lambda s: s.rankme)

    @property
    def separated(self) -> bool:
        """Is the best by labels better than the newest by more than twice the error of their difference?"""
        best, newest = self.best_by_labels, self.saved[-1]
        if best is None:
            return False
        error = math.hypot(best.knn.error, newest.knn.error)
        return best.knn.percent - newest.knn.percent > 2 * error


LOOKED_AT = 2000


def checkpoints(run: str | Path, *, images: int = LOOKED_AT) -> Checkpoints:
    """Which checkpoint is best? kNN (k 20) of each, where there are labels, and RankMe of its features, which
    needs none.

    images: how many are looked at, besides those that are tested on.
    """
    folder = RunFolder.open(run)
    config = Config.read(folder.config_file)
    dataset = opened(config, console_of(quiet=True))
    check_same(config, folder, dataset)
    source = dataset.train.source
    steps = engine.checkpoint_steps(folder)
    if not steps:
        raise InputError(f"{run} holds no checkpoint; `frossl resume` goes on until there is one")
    split = None if dataset.train.labels is None else labelled_split(dataset)
    ids = torch.arange(len(source))
    bank = split.bank if split is not None else Labelled(source, ids, torch.full((len(ids),), -1))
    bank = bank.at_most(images)
    saved = []
    for step in steps:
        encoder = encoder_at(config, folder, step).ready_on(measuring_device(config))
        features, labels = extract(encoder, bank)
        score = Score(0.0, 0.0, 0)
        if split is not None:
            test = extract(encoder, split.test.at_most(images))
            score = knn_accuracy(features, labels, *test, k=min(K, len(features)))
        rank = effective_rank(eigenvalues(features)).item()
        saved.append(Saved(step, rank, rankme(features).item(), score))
    return Checkpoints(tuple(saved), labelled=split is not None)
