"""Build a run in memory from a settled configuration: networks, optimizer, data, views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from frossl.augment import Augment, OwnViews, Transform
from frossl.config import Config, Settlement
from frossl.data import ArraySource, Dataset, Loader, MappedSource, Source
from frossl.engine.budget import Pacer
from frossl.engine.guard import Guard
from frossl.engine.launch import open_fabric
from frossl.engine.monitor import Monitor
from frossl.engine.settle import best_view_kernel, max_steps, split_options
from frossl.engine.stopwatch import Stopwatch
from frossl.errors import ConfigError, InputError
from frossl.methods import Method
from frossl.methods.own import find_method
from frossl.networks import (
    Encoder,
    build_backbone,
    build_projector,
    features_of,
    freeze_layers,
    frozen_batch_norm,
    layerwise_lr_scales,
    synchronized,
)
from frossl.optim import build_optimizer, set_lr, warmup_cosine, warmup_stable_decay
from frossl.types import Batch, Clock, isolated_rng

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Views = Callable[[Batch, Clock], list[Tensor]]
"""Function that makes the views of a batch: a tensor (V_s, N, C, S, S) for each size, largest first."""


@dataclass
class State:
    """Everything that a run holds in memory."""

    config: Config
    fabric: Fabric
    method: Method
    wrapped: Any
    """The method as Fabric wraps it: gradients of what goes through its `project` are averaged over
    processes."""
    optimizer: torch.optim.Optimizer
    augment: Views
    loader: Loader
    guard: Guard
    encoder: Encoder
    """Encoder that the run exports; it shares its weights with the method."""
    monitor: Monitor
    stopwatch: Stopwatch
    step: int = 0
    """Number of steps done."""
    pacer: Pacer | None = None
    """Pace of a run with a time budget; None without."""

    @property
    def project(self) -> Callable[[Sequence[Tensor]], dict[str, Tensor]]:
        project: Callable[[Sequence[Tensor]], dict[str, Tensor]] = self.wrapped.project
        return project

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.fabric.is_global_zero

    def lr(self, clock: Clock) -> float:
        optim, (step, total) = self.config.optim, clock.schedule
        warmup, peak = round(optim.warmup * total), optim.lr(self.loader.batch_size)
        if optim.schedule == "wsd":
            decay = round(optim.decay * total)
            return warmup_stable_decay(step, total=total, warmup=warmup, decay=decay, peak=peak)
        return warmup_cosine(step, total=total, warmup=warmup, peak=peak)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Take over changes of the number of steps, from now on or from a checkpoint."""
        self.loader.settlements = given = tuple(settlements)
        self.config = replace(self.config, train=replace(self.config.train, settlements=given))

    def set_lr(self, clock: Clock) -> None:
        set_lr(self.optimizer, self.lr(clock))

    def to_device(self, batch: Batch) -> Batch:
        return Batch(*map(self.fabric.to_device, (batch.images, batch.ids, batch.sizes)))


def build_method(config: Config, *, pretrained: bool = True) -> Method:
    """Build the networks before the first step, from the configuration and its seed alone.

    Args:
        config: Settled configuration.
        pretrained: Read `network.weights`; not needed if a checkpoint replaces every weight.
    """
    network = config.network
    with isolated_rng():
        backbone = _seeded_backbone(config, pretrained=pretrained)
        projector = build_projector(
            features_of(backbone),
            hidden=network.projector_hidden,
            out=network.projector_out,
            layers=network.projector_layers,
            norm=network.projector_norm,
        )
        of_method, of_objective = split_options(config)
        networks, objective = find_method(config.objective)
        method = networks(backbone, projector, objective(**of_objective), **of_method)
        method.together = config.train.together
        return method.train()


def initial_backbone(config: Config, *, pretrained: bool = True) -> nn.Module:
    """Build the backbone as it is before the first step; `build_method` explains the arguments.

    It is drawn first from the seed, so it needs no method, whose code may be the user's.
    """
    with isolated_rng():
        return _seeded_backbone(config, pretrained=pretrained)


def _seeded_backbone(config: Config, *, pretrained: bool) -> nn.Module:
    """Seed the random numbers and build the backbone."""
    network = config.network
    if not config.views:
        raise ConfigError("views", [], "a run names its views; restore its config.toml")
    torch.manual_seed(config.train.seed)
    backbone = build_backbone(network, size=max(spec.size for spec in config.views), pretrained=pretrained)
    if network.freeze:
        freeze_layers(backbone, network.freeze)
    _try_out(backbone, config)
    return backbone


@torch.no_grad()
def _try_out(backbone: nn.Module, config: Config) -> None:
    """Run the backbone once on every image size, since some architectures accept certain sizes only."""
    backbone.eval()
    sizes = {spec.size for spec in config.views} | {config.data.eval_size or config.data.size or 32}
    for size in sizes:
        try:
            backbone(torch.zeros(1, config.network.channels or 3, size, size))
        except Exception as error:
            raise InputError(
                f"{config.network.backbone} does not take images of {size} pixels ({error}); "
                "choose another backbone or size"
            ) from None


def build(
    config: Config,
    data: Dataset,
    fabric: Fabric | None = None,
    transform: Transform | None = None,
    *,
    method: Method | None = None,
) -> State:
    """Build the state of a run at step 0.

    Args:
        config: Settled configuration.
        data: Its images.
        fabric: The processes, as `launch` returned them; one process if None.
        transform: The user's function that makes views, if the run has one.
        method: Networks at the start, as `build_method` returned them; built here if None.
    """
    train = config.train
    fabric = fabric or open_fabric(train, devices=1, num_nodes=1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    method = method or build_method(config)
    if train.channels_last:
        method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loader = Loader(
        data.train.source,
        batch_size=train.batch_size,
        epochs=train.epochs,
        steps=train.steps,
        settlements=train.settlements,
        seed=train.seed,
        max_steps=max_steps(),
        rank=fabric.global_rank,
        processes=fabric.world_size,
        whole=crops_whole_images(config, data.train.source),
    )
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        method = synchronized(method)
    wrapped = fabric.setup_module(method)
    wrapped.mark_forward_method("project")
    if fabric.world_size > 1:
        _arrange_buckets(wrapped, method, config, fabric)
    guard = Guard(fabric.device)
    optimizer = _optimizer(method, config, lr=config.optim.lr(loader.batch_size), maskable=guard.masked)
    augment = build_views(config, data, transform)
    encoder = build_encoder(method.encoder, config, data).to(fabric.device)
    monitor = Monitor(config.diagnostics, data, method, encoder)
    stopwatch = Stopwatch(fabric.device)
    return State(
        config, fabric, method, wrapped, optimizer, augment, loader, guard, encoder, monitor, stopwatch
    )


def crops_whole_images(config: Config, source: Source) -> bool:
    """Return whether views are cropped from whole images instead of from their central squares.

    Version 0.1.0, whose runs do not say, cropped files and packs to squares, and arrays not.
    """
    given = config.data.keep_aspect
    return isinstance(source, (ArraySource, MappedSource)) if given is None else given


def build_encoder(backbone: nn.Module, config: Config, data: Dataset) -> Encoder:
    """Put a backbone behind the preprocessing that its images need.

    Runs of version 0.1.0 read images at the size at which they are stored.
    """
    mean, std = data.statistics
    return Encoder(backbone, size=config.data.eval_size or data.size, mean=mean, std=std)


def build_views(config: Config, data: Dataset, transform: Transform | None = None) -> Views:
    """Return the function that makes the views of a batch."""
    if transform is not None:
        if config.transform is None:
            raise InputError("the views of this run are made by a view set; leave the transform out")
        return OwnViews(transform, views=sum(spec.count for spec in config.views))
    if config.transform is not None:
        raise InputError(
            f"the views of this run were made by a function of yours ({config.transform}); "
            "give it again, from Python: resume(run, transform=...)"
        )
    mean, std = data.statistics
    kernel = config.train.view_kernel or best_view_kernel(config.train.device or "cpu")
    return Augment(config.views, mean=mean, std=std, kernel=kernel)


def _arrange_buckets(wrapped: Any, method: Method, config: Config, fabric: Fabric) -> None:
    """Make DDP arrange its gradient buckets now, by backward passes that are thrown away.

    DDP rearranges them after its first backward pass, and sums over three or more processes are rounded by
    that order: without this, a resumed run would round its first step differently.
    """
    sizes = {spec.size: 0 for spec in sorted(config.views, key=lambda spec: -spec.size)}
    for spec in config.views:
        sizes[spec.size] += spec.count
    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with isolated_rng(devices), frozen_batch_norm(method):
        dtype, channels = next(method.parameters()).dtype, config.network.channels or 3
        views = [
            torch.rand(count, 2, channels, size, size, dtype=dtype, device=fabric.device)
            for size, count in sizes.items()
        ]
        for _ in range(2):  # the second forward pass arranges
            projected = wrapped.project(views)
            fabric.backward(torch.stack([x.float().sum() for x in projected.values()]).sum())
    method.zero_grad()


def _optimizer(method: Method, config: Config, *, lr: float, maskable: bool) -> torch.optim.Optimizer:
    def in_method(name: str) -> str:
        return f"backbone.{name}"

    backbone, scales, decay = method.backbone, {}, config.optim.layer_decay
    if decay < 1:
        scales = {
            in_method(name): scale for name, scale in layerwise_lr_scales(backbone, decay=decay).items()
        }
    spared = {in_method(name) for name in getattr(backbone, "no_weight_decay", set)()}
    return build_optimizer(method, config.optim, lr=lr, scales=scales, spared=spared, maskable=maskable)
