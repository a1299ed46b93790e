"""Config -> State. The only file that knows every room below."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import torch
from lightning_fabric import Fabric

from frossl.augment import Augment, view_set
from frossl.config import Config, Device, Precision
from frossl.data import Dataset, Loader
from frossl.errors import InputError, unknown
from frossl.methods import METHODS, JointEmbedding
from frossl.networks import build_backbone, build_projector, check_backbone, default_stem, features_of
from frossl.objectives import OBJECTIVES
from frossl.optim import build_optimizer, warmup_cosine
from frossl.runs import RunFolder
from frossl.types import Batch, Clock

VIEW_SET = "gentle"


@dataclass
class State:
    """A run in memory."""

    config: Config
    folder: RunFolder
    fabric: Fabric
    method: JointEmbedding
    optimizer: torch.optim.Optimizer
    augment: Augment
    loader: Loader
    step: int = 0
    """Steps done so far."""
    warmup: int = field(init=False)

    def __post_init__(self) -> None:
        self.warmup = round(self.config.optim.warmup * self.loader.total)

    def lr(self, clock: Clock) -> float:
        peak = self.config.optim.lr(self.loader.batch_size)
        return warmup_cosine(clock.step, total=self.loader.total, warmup=self.warmup, peak=peak)

    def set_lr(self, clock: Clock) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr(clock)

    def to_device(self, batch: Batch) -> Batch:
        return Batch(self.fabric.to_device(batch.images), self.fabric.to_device(batch.ids))


def settle(config: Config, data: Dataset, *, views: int = 2, view_set_name: str | None = None) -> Config:
    """Turn every None into a value, so that the configuration repeats the run. Refuses unknown names."""
    if config.objective.method not in METHODS:
        raise unknown("method", config.objective.method, METHODS)
    check_backbone(config.network.backbone)
    device = config.train.device or _best_device()
    specs = config.views or view_set(view_set_name or VIEW_SET, size=view_size(data.size), views=views)
    if sum(spec.count for spec in specs) < 2:
        raise InputError("the views add up to one; views of one image are compared, so give at least 2")
    largest = max(spec.size for spec in specs)
    return replace(
        config,
        data=replace(config.data, size=data.size),
        network=replace(
            config.network,
            stem=config.network.stem or default_stem(config.network.backbone, size=largest),
        ),
        train=replace(
            config.train,
            device=device,
            precision=config.train.precision or _best_precision(device),
            channels_last=config.train.channels_last is not False,
        ),
        views=specs,
    )


def view_size(stored: int) -> int:
    """Three quarters of the stored size: crops are magnified on average, so features are then read from whole
    images at the scale they were learned at; and smaller views are cheaper (docs/decisions.md)."""
    return max(8, round(0.75 * stored / 8) * 8)


def build(config: Config, data: Dataset, folder: RunFolder) -> State:
    """Networks, optimizer, data and views of a settled configuration, at step 0."""
    train = config.train
    assert train.device is not None
    assert train.precision is not None
    fabric = Fabric(accelerator=train.device, devices=1, precision=train.precision)
    method = build_method(config)
    torch.manual_seed(train.seed)
    if train.channels_last:
        method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loader = Loader(
        data.train.source,
        batch_size=train.batch_size,
        epochs=train.epochs,
        seed=train.seed,
        max_steps=max_steps(),
    )
    optimizer = build_optimizer(method, config.optim, lr=config.optim.lr(loader.batch_size))
    wrapped, optimizer = fabric.setup(method, optimizer)
    wrapped.mark_forward_method("project")
    mean, std = data.statistics
    return State(
        config, folder, fabric, wrapped, optimizer, Augment(config.views, mean=mean, std=std), loader
    )


def build_method(config: Config) -> JointEmbedding:
    """The networks as they are before the first step: a function of the configuration and its seed."""
    network = config.network
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        backbone = build_backbone(network, size=max(spec.size for spec in config.views))
        projector = build_projector(
            features_of(backbone),
            hidden=network.projector_hidden,
            out=network.projector_out,
            layers=network.projector_layers,
        )
    objective = OBJECTIVES[config.objective.method](**config.objective.options())
    return METHODS[config.objective.method](backbone, projector, objective)


def max_steps() -> int | None:
    """$FROSSL_MAX_STEPS ends any training early, for smoke tests."""
    text = os.environ.get("FROSSL_MAX_STEPS", "")
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"FROSSL_MAX_STEPS is {text!r}; give a number of steps, or unset it")
    return int(text)


def _best_device() -> Device:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _best_precision(device: Device) -> Precision:
    """bf16 where the hardware has it: on a CPU without its instructions it is several times slower."""
    if device == "cuda" and torch.cuda.is_bf16_supported():
        return "bf16-mixed"
    return "32-true"
