"""Inputs and results of an evaluation: images, encoders and scores."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import torch

import frossl.engine as engine
from frossl._api.common import check_same_images, check_weights, data_config, make_console, open_data
from frossl._api.encoder_rows import EncoderRow
from frossl.config import Config, Data, Device
from frossl.data import Dataset, with_test
from frossl.errors import InputError
from frossl.evaluation import EvalSplit, Evaluation, FeatureCache, labelled_split
from frossl.exporting import load_encoder, read_encoder
from frossl.networks import Encoder, public_encoder
from frossl.runs import EvaluationRecord, RunFolder
from frossl.types import isolated_rng

logger = logging.getLogger("frossl")


class EvalOptions(TypedDict, total=False):
    """Keyword arguments that all evaluation functions share.

    Attributes:
        data: Images to evaluate on (transfer); those that the run was trained on if None.
        root: Folder of a data set that is given to `data` by its name.
        test: Images to test on, in place of the data's own test split.
        against: Other encoders to evaluate: each a run folder, the name of a timm architecture (with the
            weights that timm downloads), or NAME=FILE with local weights.
        step: Training step of a checkpoint to evaluate; the final encoder if None.
    """

    data: str | Path | None
    root: str | Path | None
    test: str | Path | None
    against: Sequence[str]
    step: int | None


@dataclass(frozen=True)
class EvalContext:
    """Run with the images and encoders of its evaluation."""

    folder: RunFolder
    config: Config
    step: int
    """Training step of the encoder in the row `trained`."""
    data_name: str
    """Name of the data set, for the record."""
    split: EvalSplit
    """Labelled images to fit on and to test on."""
    encoders: Mapping[str, EncoderRow]
    """Encoders by row."""
    identity: str
    """Id of the run when it was opened, because another run may replace it in its folder meanwhile."""

    @classmethod
    def open(
        cls,
        run: str | Path,
        *,
        data: str | Path | None = None,
        root: str | Path | None = None,
        test: str | Path | None = None,
        against: Sequence[str] = (),
        step: int | None = None,
    ) -> EvalContext:
        """Read a run, its images and its encoders; see `EvalOptions` for the arguments.

        Raises:
            InputError: If there is no encoder or no labels, or if images or weights have changed since the
                run was started.
        """
        folder = RunFolder.open(run)
        config = Config.read(folder.config_file)
        check_weights(config, folder.provenance())
        dataset = _open_eval_data(config, folder, data, root, test)
        split = labelled_split(dataset) if test is None else labelled_split(dataset, tested_on=str(test))
        identity = folder.identity()
        if step is None:
            trained, design = read_encoder(folder.path)
            step = folder.read_status().step if design.step is None else design.step
        else:
            trained = encoder_at(config, folder, step)
        others = {name: _load_other(name, config.network.channels or 3) for name in against}
        encoders = comparison_encoders(folder, config, trained, others)
        return cls(folder, config, step, dataset.name, split, encoders, identity)

    @cached_property
    def cache(self) -> FeatureCache:
        """Features that earlier evaluations of the run have stored."""
        return FeatureCache(self.folder.features)

    @property
    def note(self) -> str:
        """Origin of the test images, and what the encoders see of them."""
        sizes = {encoder.size for encoder in self.encoders.values()}
        others = ", ".join(
            f"{row} {encoder.size} px"
            for row, encoder in self.encoders.items()
            if row not in ("trained", "untrained")
        )
        at = f"{self.encoders['trained'].size} px" + (f" ({others})" if len(sizes) > 1 else "")
        return f"{self.split.note}; encoders see the central square at {at}"

    @property
    def device(self) -> Device:
        """Device to evaluate on."""
        return measuring_device(self.config)

    def save(self, evaluation: Evaluation) -> Evaluation:
        """Append an evaluation to the records of the run folder and return it.

        If the folder cannot be written, that is logged as a warning.
        """
        origin = {"step": self.step, "data": self.data_name, "split": self.split.kind}
        record = EvaluationRecord.new({**origin, **evaluation.to_json()})
        try:
            self.folder.record_evaluation(record, identity=self.identity)
        except OSError as error:
            logger.warning("%s cannot be written (%s): the evaluation is not saved", self.folder.path, error)
        return evaluation


def measuring_device(config: Config) -> Device:
    """Return the device to evaluate a run on: that of its training if available, else the best available."""
    device = config.train.device or "cpu"
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return device if available[device] else engine.best_device()


def comparison_encoders(
    folder: RunFolder, config: Config, trained: Encoder, others: Mapping[str, Encoder] | None = None
) -> dict[str, EncoderRow]:
    """Return the encoders of an evaluation by row: `untrained`, `trained` and others.

    Args:
        folder: Run folder.
        config: Configuration of the run, from which the untrained network is built again.
        trained: Encoder of the run.
        others: Other encoders by row.
    """
    device = measuring_device(config)
    untrained = EncoderRow.untrained(config, trained, device, folder.provenance().get("weights_digest"))
    given = {"trained": trained, **(others or {})}
    return {"untrained": untrained, **{row: EncoderRow.of(one, device) for row, one in given.items()}}


def _open_eval_data(
    config: Config,
    folder: RunFolder,
    data: str | Path | None,
    root: str | Path | None,
    test: str | Path | None,
) -> Dataset:
    if data is None and root is not None:
        raise InputError("root is the folder of other data; give its name, too")
    if data is None:
        dataset = open_data(config, make_console(quiet=True))
        check_same_images(config, folder, dataset)
    else:
        dataset = _open_other_data(config, data, root)
    return dataset if test is None else with_test(dataset, _open_other_data(config, test, None))


def _open_other_data(config: Config, data: str | Path, root: str | Path | None) -> Dataset:
    """Open images other than those of the run, which must have as many channels as its encoder takes."""
    other = replace(config, data=data_config(Data(size=config.data.size), data, root=root))
    dataset = open_data(other, make_console(quiet=True))
    channels = dataset.train.source.channels
    if channels != config.network.channels:
        raise InputError(
            f"{data} has images of {channels} channels, and the encoder takes "
            f"{config.network.channels}; give images of the kind it was trained on"
        )
    return dataset


def _load_other(name: str, channels: int) -> Encoder:
    """Load an encoder that is given as a run folder, NAME or NAME=FILE."""
    if (Path(name) / "config.toml").is_file():
        other = load_encoder(name)
        if len(other.mean) != channels:
            raise InputError(f"{name} takes images of {len(other.mean)} channels, these have {channels}")
        return other
    architecture, separator, file = name.partition("=")
    with isolated_rng():  # initial weights are drawn before they are replaced
        return public_encoder(architecture, weights=file if separator else None, channels=channels)


def encoder_at(config: Config, folder: RunFolder, step: int) -> Encoder:
    """Return the encoder of a checkpoint; the run need not be finished.

    Args:
        config: Configuration of the run.
        folder: Run folder.
        step: Training step of the checkpoint.
    """
    backbone = engine.backbone_at(config, folder, step)
    if folder.encoder.is_file():
        return load_encoder(folder.path).with_backbone(backbone)
    return engine.build_encoder(backbone, config, open_data(config, make_console(quiet=True)))
