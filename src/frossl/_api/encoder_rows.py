"""Encoders of an evaluation, built when they are needed, and the keys of their stored features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property

import timm

import frossl.engine as engine
from frossl.config import Config, Device, ViewSpec
from frossl.data import Source
from frossl.errors import ConfigError
from frossl.evaluation import Extractor
from frossl.evaluation.feature_cache import FeatureCache, StoredFeatures
from frossl.evaluation.features import crop_features, whole_image_features
from frossl.features.blocks import fingerprint
from frossl.networks import Encoder


@dataclass(frozen=True)
class EncoderRow:
    """Encoder of an evaluation; it is built on first use, which features that are stored make unnecessary."""

    key: tuple[object, ...]
    """Everything that determines the encoder."""
    width: int
    """Number of its features F."""
    size: int
    """Size in pixels at which it reads images."""
    device: Device
    build: Callable[[], Encoder]

    @classmethod
    def of(cls, encoder: Encoder, device: Device) -> EncoderRow:
        """Return the row of an encoder that exists, identified by its weights and layers."""
        backbone = encoder.backbone
        architecture = getattr(backbone, "pretrained_cfg", None) or {}
        key = (fingerprint(encoder), repr(backbone), architecture.get("architecture"))
        return cls(key, encoder.num_features, encoder.size, device, lambda: encoder)

    @classmethod
    def untrained(cls, config: Config, trained: Encoder, device: Device, weights: object) -> EncoderRow:
        """Return the row of the network before training, identified by the settings that it is drawn from.

        Args:
            config: Configuration of the run.
            trained: Encoder of the run, with the same preprocessing.
            device: Device of the evaluation.
            weights: Digest of the file of initial weights, if there is one.

        Raises:
            ConfigError: If the configuration has no views.
        """
        if not config.views:
            raise ConfigError("views", [], "a run names its views; restore its config.toml")
        preprocessing = trained.size, trained.mean.flatten().tolist(), trained.std.flatten().tolist()
        sizes = sorted({spec.size for spec in config.views})
        drawn = config.train.seed, sizes, sorted(asdict(config.network).items()), weights, timm.__version__
        return cls(
            ("untrained", *preprocessing, *drawn),
            trained.num_features,
            trained.size,
            device,
            lambda: trained.with_backbone(engine.initial_backbone(config)),
        )

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder, on the device and in evaluation mode."""
        return self.build().ready_on(self.device)

    def stored(self, cache: FeatureCache, source: Source, *way: object) -> StoredFeatures:
        """Return the features of a source's images that are stored.

        Args:
            cache: Stored features of a run.
            source: Source of the images.
            *way: Settings of the crops; none for whole images.
        """
        images = type(source).__name__, source.size, source.channels
        return cache.open(self.width, *self.key, self.device, *images, *way)

    def extractor(self, cache: FeatureCache, source: Source, view: ViewSpec, crops: int | None) -> Extractor:
        """Return the extractor of features of a source's images.

        Args:
            cache: Stored features of a run.
            source: Source of the images.
            view: Scale, aspect ratio and flips of crops.
            crops: Number of crops per image; None for the whole image.
        """
        if crops is None:
            whole = self.stored(cache, source)
            return Extractor(lambda batch: whole_image_features(self.encoder)(batch), whole)
        way = crops, view.size, view.scale, view.ratio, view.interpolation, view.flip
        return Extractor(
            lambda batch: crop_features(self.encoder, view, crops=crops)(batch),
            self.stored(cache, source, *way),
            by_id=True,
        )
