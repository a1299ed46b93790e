"""Feature extraction from labelled images, and the baselines that need no encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from frossl.augment import ViewSpec, make_views, plan, standardize
from frossl.data import DIGEST_BYTES, FileSource, Source, content_digests
from frossl.errors import NotFiniteError
from frossl.evaluation.feature_cache import FeatureCache, StoredFeatures
from frossl.evaluation.split import Labelled
from frossl.networks import Encoder
from frossl.types import Batch, Clock

Rows = tuple[Tensor, Tensor]
"""Features (N, F) and labels (N,)."""
FeatureFunction = Callable[[Batch], Tensor]
"""Function from a batch of images to their features (N, F)."""
Progress = Callable[[int, int], None]
"""Function that is called with the number of images that are done and the number of all."""

BATCH_SIZE = 64
"""Images per forward pass; larger ones do not fit the caches of a CPU, and took up to 1.7 times as long."""


PIXELS_SIDE = 32
"""Side in pixels to which larger images are resized, for their pixels as features."""
COLOR_BINS = 16
"""Brightness bins per channel."""


@dataclass(frozen=True)
class Extractor:
    """Way to compute features, with those that are stored."""

    function: FeatureFunction
    stored: StoredFeatures | None = None
    by_id: bool = False
    """Whether features depend on the id of an image, too, because random crops do."""


def extract(encoder: nn.Module, images: Labelled, *, stored: StoredFeatures | None = None) -> Rows:
    """Compute pooled features of images.

    The encoder runs in evaluation mode on its own device; the mode of each of its modules is restored
    afterwards. Images that cannot be read are left out.

    Args:
        encoder: A module that maps images (N, C, H, W) to features (N, F).
        images: The images and their labels.
        stored: Features of this encoder that need not be computed; computed ones are added.

    Returns:
        Features (N, F), float32 on the CPU, and labels (N,).

    Raises:
        NotFiniteError: If a feature is NaN or infinite.
    """
    with _evaluation_mode(encoder):
        return _extract_one(images, Extractor(whole_image_features(encoder), stored))


def bag_of_features(encoder: Encoder, images: Labelled, view: ViewSpec, *, crops: int) -> Rows:
    """Compute the mean of the features of random crops of each image.

    This is the evaluation of networks trained on small patches (EMP-SSL).

    Args:
        encoder: The encoder, whose mean and standard deviation standardize the crops.
        images: The images and their labels.
        view: Scale, aspect ratio and flips of the crops; its other operations are not applied.
        crops: Number of crops per image. The crops are the same in every call.

    Returns:
        Features (N, F) and labels (N,), as from `extract`.
    """
    with _evaluation_mode(encoder):
        return _extract_one(images, Extractor(crop_features(encoder, view, crops=crops)))


def pixels(images: Labelled) -> Rows:
    """Return pixel values as features, and labels; see `pixel_features`."""
    return _extract_one(images, Extractor(pixel_features))


def colors(images: Labelled) -> Rows:
    """Return color histograms as features, and labels; see `color_features`."""
    return _extract_one(images, Extractor(color_features))


@contextmanager
def _evaluation_mode(encoder: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in encoder.modules()}  # frozen layers may differ
    encoder.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def whole_image_features(encoder: nn.Module) -> FeatureFunction:
    """Return the function that computes the features of whole images by an encoder in evaluation mode."""
    device = next(encoder.parameters()).device
    return lambda batch: encoder(batch.images.to(device))


def crop_features(encoder: Encoder, view: ViewSpec, *, crops: int) -> FeatureFunction:
    """Return the function that averages features over random crops; see `bag_of_features`."""
    device = next(encoder.parameters()).device
    clock = Clock(step=0, total=1, epoch=0, seed=0)
    spec = ViewSpec(
        size=view.size,
        scale=view.scale,
        ratio=view.ratio,
        interpolation=view.interpolation,
        flip=view.flip,
    )
    mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()

    def features(batch: Batch) -> Tensor:
        moved = batch.to(device)
        height, width = moved.images.shape[-2:]
        total = torch.zeros(())
        for crop in range(crops):  # one at a time, to bound memory
            chosen = plan(spec, moved.ids, torch.tensor([crop]), clock, height=height, width=width)
            (view,) = standardize(make_views(moved, spec, chosen), mean, std)
            total = total + encoder.backbone(view)
        return total / crops

    return features


def pixel_features(batch: Batch) -> Tensor:
    """Return pixel values in [−0.5, 0.5] as features (N, C·H·W): a strong baseline.

    Images with a longer side than `PIXELS_SIDE` are resized to squares of that side.
    """
    pixels = batch.images.float() / 255 - 0.5
    if max(pixels.shape[-2:]) > PIXELS_SIDE:
        pixels = F.interpolate(pixels, (PIXELS_SIDE, PIXELS_SIDE), mode="bilinear", antialias=True)
    return pixels.flatten(1)


def color_features(batch: Batch) -> Tensor:
    """Return color histograms as features (N, C·16): a baseline that knows nothing of shape.

    Values are square roots of the frequencies, so that a cosine compares two histograms.
    """
    (N, C, H, W), bins = batch.images.shape, COLOR_BINS
    bin_of = (batch.images.int() * bins >> 8).view(N * C, H * W) + bins * torch.arange(N * C)[:, None]
    counts = torch.bincount(bin_of.flatten(), minlength=N * C * bins)
    return (counts.view(N, C * bins) / (H * W)).sqrt()


def baseline_extractors(source: Source, cache: FeatureCache) -> dict[str, Extractor]:
    """Return the extractors that need no encoder, `pixels` and `colors`.

    Pixels are stored if images must be decoded for them, which takes longer than reading them.

    Args:
        source: Source of the images.
        cache: Stored features.
    """
    images = type(source).__name__, source.size, source.channels
    stored = None
    if isinstance(source, FileSource):  # whose images are square
        stored = cache.open(source.channels * min(source.size, PIXELS_SIDE) ** 2, "pixels", *images)
    colors = cache.open(source.channels * COLOR_BINS, "colors", *images)
    return {"pixels": Extractor(pixel_features, stored), "colors": Extractor(color_features, colors)}


def _extract_one(images: Labelled, extractor: Extractor) -> Rows:
    (rows,) = extract_all(images, {"": extractor}).values()
    return rows


@torch.inference_mode()
def extract_all(
    images: Labelled, extractors: Mapping[str, Extractor], *, progress: Progress = lambda done, total: None
) -> dict[str, Rows]:
    """Compute features by several extractors in one pass over the images that any of them needs.

    Images that the source replaced as unreadable are left out.

    Args:
        images: The images and their labels.
        extractors: Extractors by row.
        progress: Function that is told the number of images that were read.

    Returns:
        Features and labels by row.

    Raises:
        NotFiniteError: If a feature is NaN or infinite.
    """
    collectors = _collectors(images, extractors)
    missing = torch.stack([collector.missing for collector in collectors.values()]).any(0)
    places, readable = missing.nonzero()[:, 0], ~missing
    for chosen in places.split(BATCH_SIZE) if len(places) else ():
        ids = images.ids[chosen]
        batch = images.source.read(ids)
        good = batch.ids == ids
        readable[chosen] = good
        for collector in collectors.values():
            collector.take(batch.images[good], chosen[good])
        progress(int(chosen[-1]) + 1, len(missing))
    return {row: (one.rows(readable), images.labels[readable]) for row, one in collectors.items()}


def _collectors(images: Labelled, extractors: Mapping[str, Extractor]) -> dict[str, _Collector]:
    count = len(images.ids)
    extractors = {  # too many to be stored need no digests, for which every file is read
        row: one if one.stored is None or one.stored.holds(count) else replace(one, stored=None)
        for row, one in extractors.items()
    }
    asked = any(one.stored is not None for one in extractors.values())
    digests = content_digests(images.source, images.ids.tolist()) if asked else [None] * count
    return {row: _Collector(one, images.ids, digests) for row, one in extractors.items()}


class _Collector:
    """Features by one extractor: stored ones, and those of the images that it is given.

    With stored features, every forward pass is of `BATCH_SIZE` images, some of them repeated in the last one.
    The features of an image are then the same to the bit whichever others are computed with it; smaller
    batches may be rounded differently (EfficientNet on a CPU).
    """

    def __init__(self, extractor: Extractor, ids: Tensor, digests: Sequence[bytes | None]) -> None:
        self.extractor, self.ids = extractor, ids
        self.digests = _with_ids(digests, ids) if extractor.by_id else digests
        stored = extractor.stored
        self.found = torch.full((len(ids),), -1) if stored is None else stored.find(self.digests)
        self.missing = self.found < 0
        self.images, self.places = list[Tensor](), list[Tensor]()
        self.computed, self.done = list[Tensor](), list[Tensor]()

    def take(self, images: Tensor, places: Tensor) -> None:
        """Take over those of the images, at these places of all, that are missing."""
        needed = self.missing[places]
        self.images.append(images[needed])
        self.places.append(places[needed])
        if sum(map(len, self.places)) >= BATCH_SIZE:
            images, places = torch.cat(self.images), torch.cat(self.places)
            self._compute(images[:BATCH_SIZE], places[:BATCH_SIZE])
            self.images, self.places = [images[BATCH_SIZE:]], [places[BATCH_SIZE:]]

    def rows(self, readable: Tensor) -> Tensor:
        """Return the features of the readable images, and hand new ones over to be stored."""
        stored, known = self.extractor.stored, self.found >= 0
        if any(map(len, self.places)) or not (self.computed or known.any()):
            self._compute(torch.cat(self.images), torch.cat(self.places))
        computed = torch.cat(self.computed) if self.computed else torch.empty(0, 0)
        done = torch.cat(self.done) if self.done else torch.empty(0, dtype=torch.int64)
        if stored is not None and known.any():
            kept = stored.features[self.found[known]]
            computed = torch.cat([kept, computed]) if len(done) else kept
            done = torch.cat([known.nonzero()[:, 0], done])
        features = torch.empty(len(self.ids), computed.shape[1])
        features[done] = computed
        rows = features[readable]
        if not rows.isfinite().all():
            raise NotFiniteError(
                f"features of {int((~rows.isfinite()).any(1).sum())} of {len(rows)} images are not finite; "
                "the encoder is broken: train again with a lower rate"
            )
        if stored is not None:
            stored.add([self.digests[place] for place in done.tolist()], computed)  # known ones are skipped
        return rows

    def _compute(self, images: Tensor, places: Tensor) -> None:
        count = len(places)
        if count and self.extractor.stored is not None:
            repeated = torch.arange(BATCH_SIZE) % count
            images, places = images[repeated], places[repeated]
        features = self.extractor.function(Batch(images, self.ids[places])).float().cpu()
        self.computed.append(features[:count])
        self.done.append(places[:count])


def _with_ids(digests: Sequence[bytes | None], ids: Tensor) -> list[bytes | None]:
    """Return digests of contents and ids."""
    return [
        digest and hashlib.blake2b(digest + id.to_bytes(8, "little"), digest_size=DIGEST_BYTES).digest()
        for digest, id in zip(digests, ids.tolist(), strict=True)
    ]
