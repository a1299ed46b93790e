"""Options of a training run, and the configuration that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from rich.console import Console

import frossl.engine as engine
from frossl._api.common import MAX_STORED_SIZE, data_config, open_data, replace_given
from frossl.augment import Transform
from frossl.config import Config, Network, Objective, Precision
from frossl.data import Dataset
from frossl.engine.plan import Budget
from frossl.errors import InputError, unknown
from frossl.recipes import recipe

DATA_OPTIONS = ("root", "fraction", "max_bad", "labels", "test", "workers")
"""Options that are settings of `Config.data`."""
TRAIN_OPTIONS = (
    "epochs", "batch_size", "micro_batch_size", "seed", "precision", "devices", "num_nodes",
    "checkpoint_every", "checkpoint_minutes",
)  # fmt: skip
"""Options that are settings of `Config.train`."""


class RunOptions(TypedDict, total=False):
    """Keyword arguments that `pretrain` and `plan` share; see `pretrain` for their meaning."""

    config: Config | None
    settings: Mapping[str, Any] | None
    method: str | None
    backbone: str | None
    width: float | None
    views: int | None
    view_set: str | None
    epochs: int | None
    budget: str | float | Budget | None
    batch_size: int | None
    micro_batch_size: int | None
    lr: float | None
    seed: int | None
    precision: Precision | None
    devices: int | None
    num_nodes: int | None
    checkpoint_every: int | None
    checkpoint_minutes: float | None
    root: str | Path | None
    fraction: float | None
    max_bad: float | None
    labels: str | Path | None
    test: str | Path | None
    workers: int | None
    weights: str | Path | None
    loggers: Sequence[str]
    transform: Transform | None


def check_names(options: RunOptions) -> None:
    """Raise an error for an option that does not exist."""
    if strange := sorted(set(options) - set(RunOptions.__annotations__)):
        raise unknown("option of a run", strange[0], RunOptions.__annotations__)


def budget_of(options: RunOptions, began: float) -> Budget | None:
    """Return the time budget, counted from `began`; None if there is none."""
    budget = options.get("budget")
    return None if budget is None else Budget.of(budget, began)


def configure(data: str | Path, options: RunOptions) -> Config:
    """Return the configuration that the arguments of `pretrain` describe.

    Args:
        data: Folder of images, list of paths, archive, array, or name of a data set.
        options: Other arguments of `pretrain`.

    Raises:
        InputError: If the configuration is invalid, as far as that shows without opening the data.
    """
    method = options.get("method")
    config = options.get("config") or recipe("default", method=method)
    config = config.with_settings(options.get("settings") or {})
    if method is not None and method != config.objective.method:
        config = replace(config, objective=Objective(method))  # the old options belong to another method
    if options.get("epochs") is not None:
        if options.get("budget") is not None:
            raise InputError("epochs and budget both set the length of the run; give one of them")
        config = replace(config, train=replace(config.train, steps=None))
    budget_of(options, 0.0)  # raises an error for an invalid duration
    if options.get("view_set") is not None:
        config = replace(config, view_set=options["view_set"], views=())
    values: dict[str, Any] = dict(options)
    config = replace(
        config,
        data=data_config(config.data, data, **{name: values.get(name) for name in DATA_OPTIONS}),
        network=_network(config.network, values.get("backbone"), values.get("width"), values.get("weights")),
        optim=replace_given(config.optim, base_lr=options.get("lr")),
        train=replace_given(
            config.train,
            **{name: values.get(name) for name in TRAIN_OPTIONS},
            loggers=tuple(options.get("loggers", ())) or None,
        ),
    )
    engine.check(config)
    return config


def settle(config: Config, options: RunOptions, console: Console) -> tuple[Config, Dataset]:
    """Open the data, and return the configuration with a value for every None, and the data set.

    Args:
        config: Configuration from `configure`.
        options: Arguments of `pretrain`, for `views` and `transform`.
        console: Console for the status line.

    Raises:
        InputError: If the data cannot be opened, or the networks cannot be built.
    """
    largest = MAX_STORED_SIZE[config.train.device or engine.best_device()]
    dataset = open_data(config, console, largest=largest)
    transform = options.get("transform")
    config = engine.settle(config, dataset, views=options.get("views"), transform=transform)
    return config, dataset


def _network(
    network: Network, backbone: str | None, width: float | None, weights: str | Path | None
) -> Network:
    """Return the network with the options applied.

    Another backbone than the configuration's resets `width`, `stages` and `stem`, which belong to that one.
    """
    if backbone is not None and backbone != network.backbone:
        network = replace(network, backbone=backbone, width=1.0, stages=None, stem=None)
    file = weights or network.weights
    return replace_given(network, width=width, weights=file and str(Path(file).expanduser().absolute()))


def input_paths(config: Config) -> list[Path]:
    """Return the existing files and folders that a run reads."""
    data, network = config.data, config.network
    names = (data.source, data.root, data.labels, data.test, network.weights)
    return [path for name in names if name is not None and (path := Path(name)).exists()]
