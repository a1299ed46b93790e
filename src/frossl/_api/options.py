"""Options of a training run, and the configuration that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

import frossl.engine as engine
from frossl._api.common import MAX_STORED_SIZE, data_config, open_data
from frossl.augment import Transform
from frossl.config import Config, Objective
from frossl.data import NAMED, Dataset
from frossl.engine.budget import Budget
from frossl.errors import InputError
from frossl.exporting import spec_of
from frossl.methods.own import absolute_method, pin_method
from frossl.options import FieldOptions, absolute, settings_of
from frossl.recipes import recipe
from frossl.text import split_method


class RunOptions(FieldOptions, total=False):
    """Keyword arguments that `pretrain` and `plan` share; see `pretrain` for their meaning."""

    config: Config | None
    settings: Mapping[str, Any] | None
    views: int | None
    budget: str | float | Budget | None
    transform: Transform | None


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
    if not isinstance(method, str | None):
        raise InputError(f"method = {method!r} is no text; give a name, or FILE.py:NAME for a class")
    if method is not None:
        method = absolute_method(method)
        options = {**options, "method": method}
    if options.get("epochs") is not None and options.get("budget") is not None:
        raise InputError("epochs and budget both set the length of the run; give one of them")
    budget_of(options, 0.0)  # raises an error for an invalid duration
    config = options.get("config") or recipe("default", method=method)
    config = config.with_settings(options.get("settings") or {})
    config = _without_replaced(config, options).with_settings(settings_of(options, names=NAMED))
    weights = config.network.weights  # of a configuration file, it may be relative
    config = replace(
        config,
        data=data_config(config.data, data),
        network=replace(config.network, weights=weights and absolute(weights)),
    )
    fresh = config.objective if method is None else replace(config.objective, digest=None)
    config = replace(config, objective=pin_method(fresh))
    engine.check(config)
    return config


def _without_replaced(config: Config, options: RunOptions) -> Config:
    """Return the configuration without settings that belong to what the options replace.

    These are the options of another method, width, stages and stem of another backbone, and the number of
    steps if the number of epochs is given.
    """
    method, backbone = options.get("method"), options.get("backbone")
    if method is not None and method != config.objective.method:
        config = replace(config, objective=Objective(method))
    if backbone is not None and backbone != config.network.backbone:
        network = replace(config.network, backbone=backbone, width=1.0, stages=None, stem=None)
        config = replace(config, network=network)
    if options.get("epochs") is not None:
        config = replace(config, train=replace(config.train, steps=None, settlements=()))
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
    config = _with_size_of_weights(config)
    config = engine.settle(config, dataset, views=options.get("views"), transform=transform)
    return config, dataset


def _with_size_of_weights(config: Config) -> Config:
    """Return the configuration with the size at which the encoder that training starts from reads images.

    Weights of others do not say theirs.
    """
    data, weights = config.data, config.network.weights
    spec = None if weights is None or data.eval_size is not None else spec_of(weights)
    return config if spec is None else replace(config, data=replace(data, eval_size=spec.size))


def input_paths(config: Config) -> list[Path]:
    """Return the existing files and folders that a run reads."""
    data, network = config.data, config.network
    own = split_method(config.objective.method)
    names = (data.source, data.root, data.labels, data.test, network.weights, own and own[0])
    return [path for name in names if name is not None and (path := Path(name)).exists()]
