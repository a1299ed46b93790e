"""Score the checkpoints of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

import frossl.engine as engine
from frossl._api.common import check_same_images, make_console, open_data
from frossl._api.eval_context import encoder_at, measuring_device
from frossl.config import Config
from frossl.diagnostics import effective_rank, eigenvalues, rankme
from frossl.errors import InputError
from frossl.evaluation import KNN, Labelled, Score, extract, labelled_split
from frossl.runs import RunFolder


@dataclass(frozen=True)
class CheckpointScore:
    """Scores of one checkpoint."""

    step: int
    """Training step of the checkpoint."""
    rank: float
    """Effective rank of the features of unaugmented images."""
    rankme: float
    """RankMe of the same features (Garrido et al., ICML 2023)."""
    knn: Score
    """kNN accuracy; a score over 0 images if the data has no labels."""


@dataclass(frozen=True)
class Checkpoints:
    """Result of `checkpoints`: scores of the checkpoints of a run."""

    saved: tuple[CheckpointScore, ...]
    """Scores by checkpoint, oldest first."""
    labelled: bool
    """Whether the data has labels, so that `knn` of the scores is meaningful."""

    @property
    def best_by_labels(self) -> CheckpointScore | None:
        """Checkpoint with the highest kNN accuracy; None without labels."""
        return max(self.saved, key=lambda s: s.knn.percent) if self.labelled else None

    @property
    def best_without(self) -> CheckpointScore:
        """Checkpoint with the highest RankMe, which needs no labels."""
        return max(self.saved, key=lambda s: s.rankme)

    @property
    def separated(self) -> bool:
        """Whether the best checkpoint by labels exceeds the newest by more than twice the standard error of
        their difference; False without labels."""
        best, newest = self.best_by_labels, self.saved[-1]
        if best is None:
            return False
        error = math.hypot(best.knn.error, newest.knn.error)
        return best.knn.percent - newest.knn.percent > 2 * error


DEFAULT_IMAGES = 2000


def checkpoints(run: str | Path, *, images: int = DEFAULT_IMAGES) -> Checkpoints:
    """Score every checkpoint of a run to find the best.

    Each is scored by RankMe and effective rank of its features, which need no labels, and by kNN accuracy
    (k 20) if the data has labels. Nothing is written.

    Args:
        run: Run folder; the run need not be finished.
        images: Largest number of training images to compute features of, and of test images.

    Returns:
        Scores by checkpoint, with the best by labels and by RankMe.

    Raises:
        InputError: If the run has no checkpoint, or its images have changed since it started.
    """
    folder = RunFolder.open(run)
    config = Config.read(folder.config_file)
    dataset = open_data(config, make_console(quiet=True))
    check_same_images(config, folder, dataset)
    source = dataset.train.source
    steps = engine.checkpoint_steps(folder)
    if not steps:
        raise InputError(f"{run} holds no checkpoint; continue it with `frossl resume` until there is one")
    split = None if dataset.train.labels is None else labelled_split(dataset)
    ids = torch.arange(len(source))
    train = split.train if split is not None else Labelled(source, ids, torch.full((len(ids),), -1))
    train = train.at_most(images)
    saved = []
    for step in steps:
        encoder = encoder_at(config, folder, step).ready_on(measuring_device(config))
        features, labels = extract(encoder, train)
        score = Score(0.0, 0.0, 0)
        if split is not None:
            test = extract(encoder, split.test.at_most(images))
            score = KNN().settle(labels).accuracy(features, labels, *test)
        rank = effective_rank(eigenvalues(features)).item()
        saved.append(CheckpointScore(step, rank, rankme(features).item(), score))
    return Checkpoints(tuple(saved), labelled=split is not None)
