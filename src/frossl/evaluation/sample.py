"""Sample of a run's images for the report: thumbnails, two-dimensional embedding map, clusters."""

from __future__ import annotations

import io
import math

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from frossl.evaluation.feature_cache import StoredFeatures
from frossl.evaluation.features import extract
from frossl.evaluation.split import Labelled
from frossl.networks import Encoder

THUMBNAIL_SIDE = 32
"""Pixels of a thumbnail."""
THUMBNAIL_COLUMNS = 50
"""Thumbnails per row of the sheet."""
JPEG_QUALITY = 80
MAX_PCA_IMAGES = 200
"""Largest sample that is mapped by principal components instead of t-SNE."""
PCA_COMPONENTS = 30
"""Principal components that t-SNE starts from."""
TSNE_ITERATIONS = 500
CLUSTERS = 10

READ_BATCH = 256
"""Images read at a time."""


def readable_features(
    encoder: Encoder, images: Labelled, *, stored: StoredFeatures | None = None
) -> tuple[Labelled, NDArray[np.float32]]:
    """Extract features, and leave out images whose files cannot be read.

    Args:
        encoder: The encoder, on the device to compute on.
        images: The images and their labels.
        stored: Features of this encoder that need not be computed; computed ones are added.

    Returns:
        The readable images, and their features (M, F).

    Raises:
        NotFiniteError: If a feature is NaN or infinite.
    """
    features, labels = extract(encoder, images, stored=stored)
    if len(labels) < len(images.ids):
        images = _readable(images)
        features, _ = extract(encoder, images, stored=stored)
    return images, features.numpy()


def _readable(images: Labelled) -> Labelled:
    readable = torch.cat([images.source.read(ids).ids == ids for ids in images.ids.split(READ_BATCH)])
    return images.subset(readable.nonzero()[:, 0])


def thumbnails(
    images: Labelled, *, side: int = THUMBNAIL_SIDE, columns: int = THUMBNAIL_COLUMNS
) -> NDArray[np.uint8]:
    """Draw thumbnails of all images, row by row, on one sheet.

    Args:
        images: The images. Of more than three channels, the first three are drawn; of two, the first.
        side: Pixels of a thumbnail.
        columns: Thumbnails per row; image i is in row i // columns.

    Returns:
        The bytes of a JPEG file (B,).
    """
    rows = math.ceil(len(images.ids) / columns)
    sheet = torch.full((rows * side, columns * side, 3), 255, dtype=torch.uint8)
    place = 0
    for ids in images.ids.split(READ_BATCH):
        batch = images.source.read(ids).images.float()
        batch = F.interpolate(batch, (side, side), mode="bilinear", antialias=True).round().byte()
        batch = batch[:, :3] if batch.shape[1] >= 3 else batch[:, :1].expand(-1, 3, -1, -1)
        for image in batch:
            top, left = place // columns * side, place % columns * side
            sheet[top : top + side, left : left + side] = image.permute(1, 2, 0)
            place += 1
    file = io.BytesIO()
    Image.fromarray(sheet.numpy()).save(file, "JPEG", quality=JPEG_QUALITY)
    return np.frombuffer(file.getvalue(), np.uint8)


def embedding_map(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], str]:
    """Map features to the plane: t-SNE of the principal components of the normalized features.

    Up to `MAX_PCA_IMAGES` images, and features without spread, are mapped by the first two principal
    components.

    Args:
        features: Features (M, F).

    Returns:
        Coordinates (M, 2), and the name of the method.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if len(features) < 2:
        return np.zeros((len(features), 2), np.float32), "no directions"
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(norms, 1e-12)
    components = PCA(min(PCA_COMPONENTS, *unit.shape), random_state=0).fit_transform(unit)
    if len(features) <= MAX_PCA_IMAGES or np.ptp(components) < 1e-6:
        absent = max(0, 2 - components.shape[1])
        return np.pad(components[:, :2], ((0, 0), (0, absent))), "principal components"
    return TSNE(init="pca", random_state=0, max_iter=TSNE_ITERATIONS).fit_transform(components), "t-SNE"


def cluster(features: NDArray[np.float32]) -> NDArray[np.int64]:
    """Cluster features (M, F) by k-means; return the cluster of each row (M,).

    There are `CLUSTERS` clusters, or as many as there are distinct rows.
    """
    from sklearn.cluster import KMeans

    count = min(CLUSTERS, len(np.unique(features, axis=0)))
    return np.asarray(KMeans(count, n_init=1, random_state=0).fit_predict(features), np.int64)
