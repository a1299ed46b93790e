"""Config -> State. The only file that knows every room below."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from frossl.augment import Augment, OwnViews, Transform, share_out, view_set
from frossl.config import Config, Device, Precision, ViewKernel, convert
from frossl.data import Dataset, Loader
from frossl.engine.guard import Guard
from frossl.engine.launch import open_fabric, process_counts
from frossl.engine.loggers import check_logger
from frossl.engine.observer import Observer
from frossl.engine.stopwatch import Stopwatch
from frossl.errors import ConfigError, InputError, unknown
from frossl.methods import METHODS, JointEmbedding
from frossl.networks import (
    Encoder,
    build_backbone,
    build_projector,
    check_backbone,
    default_stages,
    default_stem,
    features_of,
    freeze_layers,
    rates_by_depth,
    still_statistics,
    synchronized,
)
from frossl.objectives import hints_of
from frossl.optim import build_optimizer, set_lr, warmup_cosine, warmup_stable_decay
from frossl.runs import RunFolder
from frossl.types import Batch, Clock, own_random_numbers

if TYPE_CHECKING:
    from lightning_fabric import Fabric

DEFAULT_VIEW_SET = "gentle"
CHECKPOINT_MINUTES = 5.0
LARGE = 48
"""Pixels of stored images that are large for a CPU."""


Views = Callable[[Batch, Clock], list[Tensor]]
"""The views of a batch by their size, largest first: (V_s, N, C, S, S)."""


@dataclass
class State:
    """A run in memory."""

    config: Config
    folder: RunFolder
    fabric: Fabric
    method: JointEmbedding
    wrapped: Any
    """The method as Fabric wraps it: gradients of what goes through its `project` are averaged over
    processes."""
    optimizer: torch.optim.Optimizer
    augment: Views
    loader: Loader
    guard: Guard
    observer: Observer
    stopwatch: Stopwatch
    step: int = 0
    """Steps done so far."""

    @property
    def project(self) -> Callable[[Sequence[Tensor]], dict[str, Tensor]]:
        project: Callable[[Sequence[Tensor]], dict[str, Tensor]] = self.wrapped.project
        return project

    @property
    def first(self) -> bool:
        """Of its processes, the one that writes and speaks."""
        return self.fabric.is_global_zero

    def lr(self, clock: Clock) -> float:
        optim, total = self.config.optim, clock.total
        warmup, peak = round(optim.warmup * total), optim.lr(self.loader.batch_size)
        if optim.schedule == "wsd":
            decay = round(optim.decay * total)
            return warmup_stable_decay(clock.step, total=total, warmup=warmup, decay=decay, peak=peak)
        return warmup_cosine(clock.step, total=total, warmup=warmup, peak=peak)

    def set_lr(self, clock: Clock) -> None:
        set_lr(self.optimizer, self.lr(clock))

    def to_device(self, batch: Batch) -> Batch:
        return Batch(self.fabric.to_device(batch.images), self.fabric.to_device(batch.ids))


def _check_method(name: str) -> None:
    if name not in METHODS:
        raise unknown("method", name, METHODS)


def check(config: Config) -> None:
    """Refuse unknown names and what this machine does not have, before any data is opened."""
    _check_method(config.objective.method)
    _, of_objective = split_options(config)
    METHODS[config.objective.method].objective(**of_objective)  # what single options do not show
    check_backbone(config.network.backbone)
    if config.train.precision not in (None, *get_args(Precision)):
        raise unknown("precision", str(config.train.precision), get_args(Precision))
    if config.train.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device", "cuda", "torch sees no CUDA device here; use cpu")
    if config.train.device == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("train.device", "mps", "torch sees no MPS device here; use cpu")
    if config.network.freeze and config.network.weights is None:
        hint = "freezing keeps weights that you have; give network.weights (--weights FILE)"
        raise ConfigError("network.freeze", config.network.freeze, hint)
    if config.train.view_kernel == "numba" and find_spec("numba") is None:
        hint = "numba is not installed; pip install 'frossl[fast]', or take torch"
        raise ConfigError("train.view_kernel", "numba", hint)
    for logger in config.train.loggers:
        check_logger(logger)
    max_steps()


def split_options(config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the method itself, and those of its objective: one table in the configuration.

    Types and ranges are those of their signatures.
    """
    name, given = config.objective.method, config.objective.options
    of_method = hints_of(METHODS[name].networks.__init__)
    of_objective = hints_of(METHODS[name].objective.__init__, METHODS[name].objective.function)
    for state in METHODS[name].objective.state:
        of_objective.pop(state, None)
    hints = {**of_objective, **of_method}
    for option, value in given.items():
        if option not in hints:
            raise unknown(f"option of {name}", option, hints)
        convert(hints[option], value, f"objective.options.{option}")
    method = {option: value for option, value in given.items() if option in of_method}
    return method, {option: value for option, value in given.items() if option not in of_method}


def settle(
    config: Config, data: Dataset, *, views: int | None = None, transform: Transform | None = None
) -> Config:
    """Turn every None into a value, so that the configuration repeats the run.

    views: how many there are. transform: the user's function that makes them.
    """
    _check_method(config.objective.method)
    specs, device = config.views, config.train.device or best_device()
    if transform is not None:
        count = sum(spec.count for spec in specs) or 2 if views is None else views
        if count < 2:
            raise InputError(f"views = {count}; views of one image are compared, so give at least 2")
        own = OwnViews(transform, views=count)
        specs = own.specs(data.train.source.read(torch.arange(1)))
    elif not specs:
        specs = view_set(config.view_set or DEFAULT_VIEW_SET, size=view_size(data.size, device), views=views)
    elif views is not None:
        specs = share_out(specs, views)
    if sum(spec.count for spec in specs) < 2:
        raise InputError("the views add up to one; views of one image are compared, so give at least 2")
    name, sizes = config.objective.method, sorted({spec.size for spec in specs}, reverse=True)
    by_default = METHODS[name].objective.presets["default"](sum(spec.count for spec in specs))
    objective = replace(config.objective, options={**by_default, **config.objective.options})
    if len(sizes) > 1:
        if not METHODS[name].networks.multi_crop:
            raise InputError(f"{name} takes views of one size, not {sizes}; choose one, or another method")
        if "global_views" in inspect.signature(METHODS[name].objective).parameters:
            leading = sum(spec.count for spec in specs if spec.size == sizes[0])
            objective = replace(objective, options={"global_views": leading, **objective.options})
    channels = data.train.source.channels
    if config.network.channels not in (None, channels):
        raise ConfigError("network.channels", config.network.channels, f"the images have {channels}")
    network = replace(config.network, channels=channels)
    if network.stem is None:
        size = max(spec.size for spec in specs)
        network = replace(network, stem=default_stem(network, size=size))
        if device == "cpu" and network.stages is None:
            network = replace(network, stages=default_stages(network, size=size))
    channels_last = config.train.channels_last
    devices, num_nodes = process_counts(config.train)
    batch = min(config.train.batch_size, len(data.train.source))
    if batch < 2 * devices * num_nodes:
        raise InputError(
            f"{devices * num_nodes} processes share a batch of {batch} images; give each at least two"
        )
    minutes = config.train.checkpoint_minutes
    if minutes is None and config.train.checkpoint_every is None:
        minutes = CHECKPOINT_MINUTES
    return replace(
        config,
        data=replace(config.data, size=data.size),
        network=network,
        objective=objective,
        train=replace(
            config.train,
            device=device,
            precision=config.train.precision or best_precision(device),
            channels_last=True if channels_last is None else channels_last,
            devices=devices,
            num_nodes=num_nodes,
            checkpoint_minutes=minutes,
            view_kernel=config.train.view_kernel or best_view_kernel(device),
        ),
        view_set=None,
        views=specs,
        transform=config.transform if transform is None else _name_of(transform),
    )


def _name_of(transform: Transform) -> str:
    return str(getattr(transform, "__qualname__", type(transform).__name__))


def view_size(stored: int, device: Device) -> int:
    """Pixels of a view, in steps of 4: three quarters of the stored size, which is cheaper and close to the
    scale at which features are read from whole images later, as crops are magnified on average. On a CPU five
    eighths, and half of larger images: there, more steps teach more than more pixels (docs/decisions.md)."""
    share = 0.75 * stored if device != "cpu" else max(0.625 * min(stored, LARGE), 0.5 * stored)
    return max(8, math.ceil(share / 4) * 4)


def build_method(config: Config, *, pretrained: bool = True) -> JointEmbedding:
    """The networks as they are before the first step: a function of the configuration and its seed.

    pretrained: read `network.weights`; not needed where a checkpoint replaces every weight.
    """
    network = config.network
    if not config.views:
        raise ConfigError("views", [], "a run names its views; restore its config.toml")
    with own_random_numbers():
        torch.manual_seed(config.train.seed)
        largest = max(spec.size for spec in config.views)
        backbone = build_backbone(network, size=largest, pretrained=pretrained)
        if network.freeze:
            freeze_layers(backbone, network.freeze)
        _try_out(backbone, config)
        projector = build_projector(
            features_of(backbone),
            hidden=network.projector_hidden,
            out=network.projector_out,
            layers=network.projector_layers,
            norm=network.projector_norm,
        )
        name = config.objective.method
        of_method, of_objective = split_options(config)
        networks, objective = METHODS[name]
        method = networks(backbone, projector, objective(**of_objective), **of_method)
        method.together = config.train.together
        return method.train()


@torch.no_grad()
def _try_out(backbone: nn.Module, config: Config) -> None:
    """Some architectures take certain sizes only, and say so when they are run."""
    backbone.eval()
    for size in {spec.size for spec in config.views} | {config.data.size or 32}:
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
    folder: RunFolder,
    fabric: Fabric | None = None,
    transform: Transform | None = None,
) -> State:
    """Networks, optimizer, data and views of a settled configuration, at step 0.

    fabric: what `launch` returned; one process, if not given. transform: the user's function that makes
    views.
    """
    train = config.train
    fabric = fabric or open_fabric(train, devices=1, num_nodes=1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    method = build_method(config, pretrained=not folder.checkpoint_files())
    if train.channels_last:
        method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loader = Loader(
        data.train.source,
        batch_size=train.batch_size,
        epochs=train.epochs,
        steps=train.steps,
        seed=train.seed,
        max_steps=max_steps(),
        rank=fabric.global_rank,
        processes=fabric.world_size,
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
    mean, std = data.statistics
    encoder = Encoder(method.encoder, size=data.size, mean=mean, std=std).to(fabric.device)
    observer = Observer(config.diagnostics, data, method, encoder)
    stopwatch = Stopwatch(fabric.device)
    return State(
        config, folder, fabric, method, wrapped, optimizer, augment, loader, guard, observer, stopwatch
    )


def build_views(config: Config, data: Dataset, transform: Transform | None = None) -> Views:
    """What makes views of a batch."""
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


def _arrange_buckets(wrapped: Any, method: JointEmbedding, config: Config, fabric: Fabric) -> None:
    """One backward pass that is thrown away. DDP arranges gradients anew after its first, and sums of three
    and more processes are rounded by where they lie: a resumed run would round its first step otherwise."""
    sizes = {spec.size: 0 for spec in sorted(config.views, key=lambda spec: -spec.size)}
    for spec in config.views:
        sizes[spec.size] += spec.count
    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with own_random_numbers(devices), still_statistics(method):
        dtype, channels = next(method.parameters()).dtype, config.network.channels or 3
        views = [
            torch.rand(count, 2, channels, size, size, dtype=dtype, device=fabric.device)
            for size, count in sizes.items()
        ]
        for _ in range(2):  # the second forward pass arranges
            projected = wrapped.project(views)
            fabric.backward(torch.stack([x.float().sum() for x in projected.values()]).sum())
    method.zero_grad()


def _optimizer(method: JointEmbedding, config: Config, *, lr: float, maskable: bool) -> torch.optim.Optimizer:
    def in_method(name: str) -> str:
        return f"backbone.{name}"

    backbone, scales, decay = method.backbone, {}, config.optim.layer_decay
    if decay < 1:
        scales = {in_method(name): scale for name, scale in rates_by_depth(backbone, decay=decay).items()}
    spared = {in_method(name) for name in getattr(backbone, "no_weight_decay", set)()}
    return build_optimizer(method, config.optim, lr=lr, scales=scales, spared=spared, maskable=maskable)


def max_steps() -> int | None:
    """$FROSSL_MAX_STEPS ends any training early, for smoke tests."""
    text = os.environ.get("FROSSL_MAX_STEPS", "")
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"FROSSL_MAX_STEPS is {text!r}; give a number of steps, or unset it")
    return int(text)


def best_device() -> Device:
    """CUDA where there is one. MPS only when asked for: nobody has run frossl on it yet."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def best_view_kernel(device: Device) -> ViewKernel:
    """numba's loops are six to ten times faster on a CPU (docs/results.md)."""
    return "numba" if device == "cpu" and find_spec("numba") is not None else "torch"


def best_precision(device: Device) -> Precision:
    """bf16 on a GPU that has it; not on a CPU, where it is slower (docs/decisions.md)."""
    if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16-mixed"
    return "32-true"
