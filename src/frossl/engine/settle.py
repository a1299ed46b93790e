"""Settle a configuration: check it, and turn every setting that was left open into a value."""

from __future__ import annotations

import inspect
import math
import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, get_args

import torch

from frossl.augment import OwnViews, Transform, share_out, view_set
from frossl.config import (
    Config,
    Device,
    Network,
    Objective,
    Precision,
    Train,
    ViewKernel,
    ViewSpec,
    convert,
)
from frossl.data import Dataset
from frossl.engine.launch import process_counts
from frossl.engine.loggers import check_logger
from frossl.errors import ConfigError, InputError, unknown
from frossl.methods.own import find_method
from frossl.networks import check_backbone, default_stages, default_stem
from frossl.objectives import hints_of
from frossl.text import method_title

DEFAULT_VIEW_SET = "gentle"
CHECKPOINT_MINUTES = 5.0
LARGE_FOR_CPU = 48
"""Stored size in pixels from which views on a CPU have half the stored size."""


def check(config: Config) -> None:
    """Raise an error for unknown names and missing hardware or packages, before any data is opened."""
    _, of_objective = split_options(config)
    find_method(config.objective).objective(**of_objective)  # what single options do not show
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
    """Return the options of the method and those of its objective, which share one config table.

    Their types and ranges come from the signatures.
    """
    networks, objective = find_method(config.objective)
    name, given = method_title(config.objective.method), config.objective.options
    of_method = hints_of(networks.__init__)
    of_objective = hints_of(objective.__init__, objective.function)
    for state in objective.state:
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
    """Return the configuration with every None turned into a value, so that it repeats the run.

    Args:
        config: Configuration as given.
        data: Its images.
        views: Number of views; as configured if None.
        transform: The user's function that makes views, if any.
    """
    device = config.train.device or best_device()
    specs = _settle_views(config, data, device, views, transform)
    return replace(
        config,
        data=replace(
            config.data,
            size=data.size,
            keep_aspect=config.data.keep_aspect is not False,
            eval_size=config.data.eval_size or _eval_size(config, data, specs),
        ),
        objective=_settle_objective(config.objective, specs),
        network=_settle_network(config.network, data, device, max(spec.size for spec in specs)),
        train=_settle_train(config.train, data, device),
        view_set=None,
        views=specs,
        transform=config.transform if transform is None else _name_of(transform),
    )


def _settle_views(
    config: Config, data: Dataset, device: Device, views: int | None, transform: Transform | None
) -> tuple[ViewSpec, ...]:
    specs = config.views
    if transform is not None:
        count = sum(spec.count for spec in specs) or 2 if views is None else views
        if count < 2:
            raise InputError(f"views = {count}; views of one image are compared, so give at least 2")
        own = OwnViews(transform, views=count)
        whole = config.data.keep_aspect is not False
        specs = own.specs(data.train.source.read(torch.arange(1), whole=whole))
    elif not specs:
        specs = view_set(config.view_set or DEFAULT_VIEW_SET, size=view_size(data.size, device), views=views)
    elif views is not None:
        specs = share_out(specs, views)
    if sum(spec.count for spec in specs) < 2:
        raise InputError("the views add up to one; views of one image are compared, so give at least 2")
    return specs


def _eval_size(config: Config, data: Dataset, specs: tuple[ViewSpec, ...]) -> int:
    """Return the size at which the encoder reads images: at which they look as in the largest crops.

    A network that starts from weights of a file knows other sizes, too, and is better at the stored size
    (docs/decisions.md).
    """
    if config.network.weights is not None:
        return data.size
    size, scale = max((spec.size, spec.scale[1]) for spec in specs)
    return round(size / math.sqrt(scale))


def _settle_objective(objective: Objective, specs: tuple[ViewSpec, ...]) -> Objective:
    method, sizes = find_method(objective), sorted({spec.size for spec in specs}, reverse=True)
    by_default = method.objective.presets["default"](sum(spec.count for spec in specs))
    objective = replace(objective, options={**by_default, **objective.options})
    if len(sizes) > 1:
        if not method.networks.multi_crop:
            name = method_title(objective.method)
            raise InputError(f"{name} takes views of one size, not {sizes}; choose one, or another method")
        if "global_views" in inspect.signature(method.objective).parameters:
            leading = sum(spec.count for spec in specs if spec.size == sizes[0])
            objective = replace(objective, options={"global_views": leading, **objective.options})
    return objective


def _settle_network(network: Network, data: Dataset, device: Device, size: int) -> Network:
    channels = data.train.source.channels
    if network.channels not in (None, channels):
        raise ConfigError("network.channels", network.channels, f"the images have {channels}")
    network = replace(network, channels=channels)
    if network.stem is None:
        network = replace(network, stem=default_stem(network, size=size))
        if device == "cpu" and network.stages is None:
            network = replace(network, stages=default_stages(network, size=size))
    return network


def _settle_train(train: Train, data: Dataset, device: Device) -> Train:
    devices, num_nodes = process_counts(train)
    batch = min(train.batch_size, len(data.train.source))
    if batch < 2 * devices * num_nodes:
        raise InputError(
            f"{devices * num_nodes} processes share a batch of {batch} images; give each at least two"
        )
    minutes = train.checkpoint_minutes
    if minutes is None and train.checkpoint_every is None:
        minutes = CHECKPOINT_MINUTES
    return replace(
        train,
        device=device,
        precision=train.precision or best_precision(device),
        channels_last=True if train.channels_last is None else train.channels_last,
        devices=devices,
        num_nodes=num_nodes,
        checkpoint_minutes=minutes,
        view_kernel=train.view_kernel or best_view_kernel(device),
    )


def _name_of(transform: Transform) -> str:
    return str(getattr(transform, "__qualname__", type(transform).__name__))


def view_size(stored: int, device: Device) -> int:
    """Return the size of views in pixels, a multiple of 4.

    Three quarters of the stored size: cheaper, and close to the scale at which features are read from whole
    images later, as crops are magnified on average. On a CPU five eighths, and half for larger images, as
    more steps help more than more pixels there (docs/decisions.md).
    """
    share = 0.75 * stored if device != "cpu" else max(0.625 * min(stored, LARGE_FOR_CPU), 0.5 * stored)
    return max(8, math.ceil(share / 4) * 4)


def max_steps() -> int | None:
    """Return the value of FROSSL_MAX_STEPS, which ends any training early for smoke tests; None if unset."""
    text = os.environ.get("FROSSL_MAX_STEPS", "")
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"FROSSL_MAX_STEPS is {text!r}; give a number of steps, or unset it")
    return int(text)


def best_device() -> Device:
    """Return `cuda` if available, else `cpu`; `mps` must be asked for, as frossl has never been run on it."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def best_view_kernel(device: Device) -> ViewKernel:
    """Return `numba` on a CPU if installed, where it is six to ten times faster (docs/results.md)."""
    return "numba" if device == "cpu" and find_spec("numba") is not None else "torch"


def best_precision(device: Device) -> Precision:
    """Return bf16 for a GPU that supports it, else float32 (docs/decisions.md)."""
    if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16-mixed"
    return "32-true"
