"""What comes after the last step: a brief evaluation, a sample of embeddings, the report."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from frossl.api.measuring import measured
from frossl.api.subject import Comparison, Subject, encoders_of, measuring_device
from frossl.config import Config
from frossl.data import Dataset
from frossl.errors import FrosslError
from frossl.evaluation import Labelled, extract, labelled_split
from frossl.networks import Encoder
from frossl.reporting import Sample, write_report
from frossl.runs import RunFolder, outcome_of
from frossl.runs.outcome import NOT_MEASURED

LARGEST_BANK, SMALLEST_BANK = 2000, 200
"""Images that neighbours are sought among, at the end of a run with labels, for half as many."""
FULL = 120.0
"""Seconds of training, from which on all of them are; a shorter run has fewer."""
LARGEST_SAMPLE, SMALLEST_SAMPLE = 3000, 200
SHARE = 0.05
"""Of the training's time, for the map of a sample."""
MAP_SECONDS = 0.0015
"""That an image of the map takes, by t-SNE on two cores."""
SIDE, COLUMNS = 32, 50
"""Pixels of a thumbnail, and thumbnails in a row of the sheet."""
CLUSTERS = 10


def closing_seconds(images: int, classes: int, image_seconds: float, training: float) -> float:
    """What all of this takes, about, after so many seconds of training."""
    shown = min(images, sample_size(training))
    asked = 2 * min(images, 3 * bank_size(training) // 2) if classes else 0
    return (shown + asked) * image_seconds + MAP_SECONDS * shown + 2.0


def bank_size(training: float) -> int:
    """Images that neighbours are sought among, after so many seconds of training."""
    return round(min(max(LARGEST_BANK * training / FULL, SMALLEST_BANK), LARGEST_BANK))


def sample_size(training: float) -> int:
    """Images of the map, after so many seconds of training."""
    return round(min(max(SHARE * training / MAP_SECONDS, SMALLEST_SAMPLE), LARGEST_SAMPLE))


def close(
    folder: RunFolder, config: Config, data: Dataset, encoder: Encoder, *, training: float
) -> dict[str, Comparison]:
    """Evaluate briefly where there are labels, keep a sample, settle the verdict, write the report."""
    found: dict[str, Comparison] = {}
    why = ""
    try:
        found = evaluate_briefly(folder, config, data, encoder, bank=bank_size(training))
    except FrosslError as error:  # no labels or too few, weights that are gone, a broken encoder
        why = str(error)
    take_sample(folder, config, data, encoder, images=sample_size(training))
    _settle_verdict(folder, why)
    write_report([folder.path], folder.report)
    return found


def _settle_verdict(folder: RunFolder, why: str) -> None:
    """Write into the status what came of the run. why: accuracy was not measured, if it was not."""
    status = folder.read_status()
    status["verdict"] = outcome_of(folder)
    if why and status["verdict"].get("accuracy", "").startswith(NOT_MEASURED):
        status["verdict"]["accuracy"] = f"{NOT_MEASURED}: {why}"
    folder.write_json("status.json", status)


def evaluate_briefly(
    folder: RunFolder, config: Config, data: Dataset, encoder: Encoder, *, bank: int
) -> dict[str, Comparison]:
    """kNN among a few images beside pixels and the untrained network; an error says why it cannot be."""
    split, encoders = labelled_split(data), encoders_of(config, encoder)
    among, tested = split.bank.at_most(bank), split.test.at_most(bank // 2)
    note = f"{split.note}: {len(tested.ids):,} images, with neighbours among {len(among.ids):,}"
    split = replace(split, bank=among, test=tested, note=note)
    step, identity = folder.read_status()["step"], folder.identity()
    subject = Subject(folder, config, step, data.name, split, encoders, identity)
    return measured(subject, ["knn"], brief=True)


def take_sample(
    folder: RunFolder, config: Config, data: Dataset, encoder: Encoder, *, images: int = LARGEST_SAMPLE
) -> None:
    """Thumbnails, features, labels and a map of some images: what the report is drawn from."""
    source, labels = data.train.source, data.train.labels
    values = torch.full((len(source),), -1) if labels is None else labels.values
    some = Labelled(source, torch.arange(len(source)), values).at_most(images)
    encoder = encoder.ready_on(measuring_device(config))
    try:
        features, kept = extract(encoder, some)
    except FrosslError:
        return  # an encoder that is broken has no map
    if len(kept) < len(some.ids):  # files that could not be read
        some = _readable(some)
        features, kept = extract(encoder, some)
    rows = features.numpy()
    flat, how = _flat(rows)
    Sample(
        ids=some.ids.numpy(),
        names=np.array([source.name(i) for i in some.ids.tolist()]),
        sheet=_sheet(some),
        columns=COLUMNS,
        side=SIDE,
        features=rows.astype(np.float16),
        map=flat.astype(np.float32),
        labels=kept.numpy(),
        classes=np.array(labels.names if labels is not None else (), dtype=str),
        clusters=_clusters(rows),
        note=f"{how} of {len(rows):,} images",
    ).write(folder.sample)


def _readable(some: Labelled) -> Labelled:
    good = torch.cat([some.source.read(ids).ids == ids for ids in some.ids.split(256)])
    return some.among(good.nonzero()[:, 0])


def _sheet(some: Labelled) -> NDArray[np.uint8]:
    """The thumbnails row by row, as one JPEG."""
    rows = math.ceil(len(some.ids) / COLUMNS)
    sheet = torch.full((rows * SIDE, COLUMNS * SIDE, 3), 255, dtype=torch.uint8)
    place = 0
    for ids in some.ids.split(256):
        images = some.source.read(ids).images.float()
        images = F.interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=True).round().byte()
        channels = images.shape[1]
        images = images[:, :3] if channels >= 3 else images[:, :1].expand(-1, 3, -1, -1)
        for image in images:
            top, left = place // COLUMNS * SIDE, place % COLUMNS * SIDE
            sheet[top : top + SIDE, left : left + SIDE] = image.permute(1, 2, 0)
            place += 1
    file = io.BytesIO()
    Image.fromarray(sheet.numpy()).save(file, "JPEG", quality=80)
    return np.frombuffer(file.getvalue(), np.uint8)


def _flat(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], str]:
    """Two coordinates an image, and how they were made."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if len(rows) < 2:
        return np.zeros((len(rows), 2), np.float32), "no directions"
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.maximum(length, 1e-12)
    few = PCA(min(30, *unit.shape), random_state=0).fit_transform(unit)
    if len(rows) <= SMALLEST_SAMPLE or np.ptp(few) < 1e-6:
        return np.pad(few[:, :2], ((0, 0), (0, max(0, 2 - few.shape[1])))), "principal components"
    return TSNE(init="pca", random_state=0, max_iter=500).fit_transform(few), "t-SNE"


def _clusters(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    count = min(CLUSTERS, len(np.unique(rows, axis=0)))
    return np.asarray(KMeans(count, n_init=1, random_state=0).fit_predict(rows), np.int64)
