"""End of a run: brief evaluation, sample of embeddings, verdict, report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

import frossl.engine as engine
from frossl._api.encoder_rows import EncoderRow
from frossl._api.eval_context import EvalContext, comparison_encoders, measuring_device
from frossl._api.evaluate import run_protocols
from frossl.config import Config
from frossl.data import Dataset
from frossl.errors import FrosslError
from frossl.evaluation import KNN, Evaluations, FeatureCache, Labelled, labelled_split
from frossl.evaluation.sample import (
    MAX_PCA_IMAGES,
    THUMBNAIL_COLUMNS,
    THUMBNAIL_SIDE,
    cluster,
    embedding_map,
    readable_features,
    thumbnails,
)
from frossl.networks import Encoder
from frossl.reporting import Sample, write_report
from frossl.runs import RunFolder, outcome_of
from frossl.runs.outcome import NOT_MEASURED

MAX_TRAIN_IMAGES, MIN_TRAIN_IMAGES = 2000, 200
"""Bounds of the training images of the kNN evaluation at the end of a run; half as many are tested on."""
FULL_EVAL_SECONDS = 120.0
"""Seconds of training from which on the evaluation uses `MAX_TRAIN_IMAGES`; shorter runs use fewer."""
MAX_SAMPLE_IMAGES, MIN_SAMPLE_IMAGES = 3000, MAX_PCA_IMAGES
MAP_TIME_FRACTION = 0.05
"""Fraction of the training time that the map of the sample may take."""
MAP_IMAGE_SECONDS = 0.0015
"""Seconds per image of the map, by t-SNE on two cores."""


def finish_seconds(images: int, classes: int, image_seconds: float, training: float) -> float:
    """Estimate the seconds that `close` takes.

    Args:
        images: Number of images of the data set.
        classes: Number of classes; 0 without labels, where nothing is evaluated.
        image_seconds: Seconds of a forward pass per image.
        training: Seconds of training.
    """
    sampled = min(images, sample_size(training))
    fitted_to = min(images, train_size(training)) if classes else 0
    evaluated = min(images, 3 * fitted_to // 2)  # by two networks; most of the sample is among these images
    computed = 2 * evaluated + max(0, sampled - fitted_to)
    return computed * image_seconds + MAP_IMAGE_SECONDS * sampled + 2.0


def train_size(training: float) -> int:
    """Return the number of training images of the kNN evaluation after `training` seconds of training."""
    wanted = MAX_TRAIN_IMAGES * training / FULL_EVAL_SECONDS
    return round(min(max(wanted, MIN_TRAIN_IMAGES), MAX_TRAIN_IMAGES))


def sample_size(training: float) -> int:
    """Return the number of images of the sample after `training` seconds of training."""
    wanted = MAP_TIME_FRACTION * training / MAP_IMAGE_SECONDS
    return round(min(max(wanted, MIN_SAMPLE_IMAGES), MAX_SAMPLE_IMAGES))


def affordable_training(
    training: float, seconds: float, data: Dataset, encoder: Encoder, *, share: float = 0.8
) -> float:
    """Return `training`, reduced until `close` after so many seconds of training would fit in `seconds`.

    Args:
        training: Seconds of training.
        seconds: Seconds that `close` may take.
        data: The data set.
        encoder: The trained encoder, which is timed on a few images.
        share: Factor of each reduction.
    """
    labels = data.train.labels
    images, classes = len(data.train.source), 0 if labels is None else len(labels.names)
    image_seconds = engine.time_encoder(encoder, data.train.source)
    while training > 1 and finish_seconds(images, classes, image_seconds, training) > seconds:
        training *= share
    return training


def close(
    folder: RunFolder,
    config: Config,
    data: Dataset,
    encoder: Encoder,
    *,
    training: float,
    seconds: float | None = None,
) -> Evaluations:
    """Finish a run: evaluate it briefly if there are labels, then write sample, verdict and report.

    Args:
        folder: The run folder.
        config: Configuration of the run.
        data: The data set that it was trained on.
        encoder: The trained encoder.
        training: Seconds of training, which bound the time that this takes.
        seconds: Seconds of a time budget that are left for this, if there is one.

    Returns:
        Evaluations by protocol; none if accuracy cannot be measured.
    """
    if seconds is not None:
        ready = encoder.ready_on(measuring_device(config))
        training = affordable_training(training, seconds, data, ready)
    evaluations = Evaluations()
    not_measured = ""
    try:
        evaluations = brief_evaluation(folder, config, data, encoder, train=train_size(training))
    except FrosslError as error:  # no or too few labels, missing initial weights, features not finite
        not_measured = str(error)
    take_sample(folder, config, data, encoder, images=sample_size(training))
    _write_verdict(folder, not_measured)
    write_report([folder.path], folder.report)
    return evaluations


def _write_verdict(folder: RunFolder, not_measured: str) -> None:
    """Write the verdict into the status. `not_measured` is the reason why there is no accuracy, or empty."""
    verdict = outcome_of(folder)
    if not_measured and verdict.get("accuracy", "").startswith(NOT_MEASURED):
        verdict["accuracy"] = f"{NOT_MEASURED}: {not_measured}"
    folder.update_status(folder.read_status(), verdict=verdict)


def brief_evaluation(
    folder: RunFolder, config: Config, data: Dataset, encoder: Encoder, *, train: int
) -> Evaluations:
    """Compare the encoder with pixels and the untrained network by kNN on a subset of the images.

    Args:
        folder: The run folder, which the figures are written to.
        config: Configuration of the run.
        data: The data set that it was trained on.
        encoder: The trained encoder.
        train: Number of training images; half as many are tested on.

    Raises:
        FrosslError: If accuracy cannot be measured.
    """
    split, encoders = labelled_split(data), comparison_encoders(folder, config, encoder)
    neighbors, tested = split.train.at_most(train), split.test.at_most(train // 2)
    note = f"{split.note}: {len(tested.ids):,} images, with neighbours among {len(neighbors.ids):,}"
    split = replace(split, train=neighbors, test=tested, note=note)
    step, identity = folder.read_status().step, folder.identity()
    context = EvalContext(folder, config, step, data.name, split, encoders, identity)
    return run_protocols(context, [KNN()], brief=True, quiet=True)


def take_sample(
    folder: RunFolder, config: Config, data: Dataset, encoder: Encoder, *, images: int = MAX_SAMPLE_IMAGES
) -> None:
    """Write thumbnails, features, labels, clusters and a map of some training images for the report.

    Nothing is written if the encoder's features are not finite.
    """
    source, labels = data.train.source, data.train.labels
    values = torch.full((len(source),), -1) if labels is None else labels.values
    subset = Labelled(source, torch.arange(len(source)), values).at_most(images)
    row, cache = EncoderRow.of(encoder, measuring_device(config)), FeatureCache(folder.features)
    try:
        subset, features = readable_features(row.encoder, subset, stored=row.stored(cache, source))
    except FrosslError:
        return
    cache.save()
    coordinates, method = embedding_map(features)
    Sample(
        ids=subset.ids.numpy(),
        names=np.array([source.name(i) for i in subset.ids.tolist()]),
        sheet=thumbnails(subset),
        columns=THUMBNAIL_COLUMNS,
        side=THUMBNAIL_SIDE,
        features=features.astype(np.float16),
        map=coordinates.astype(np.float32),
        labels=subset.labels.numpy(),
        classes=np.array(labels.names if labels is not None else (), dtype=str),
        clusters=cluster(features),
        note=f"{method} of {len(features):,} images",
    ).write(folder.sample)
