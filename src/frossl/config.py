"""Configuration of a run: frozen dataclasses that are read from and written to TOML.

An absent key is None: its value is chosen when the run is built and then written back, so that
`config.toml` reproduces the run. Derived values are methods. This module does not import torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import tomli_w

from frossl.errors import ConfigError, InputError, unknown

T = TypeVar("T")

Device = Literal["cpu", "cuda", "mps"]
Precision = Literal["32-true", "bf16-mixed"]
Logger = Literal["tensorboard", "wandb", "mlflow"]
ViewKernel = Literal["torch", "numba"]

INF = float("inf")
MAX_WIDTH = 1 << 16
"""Largest number of channels or pixels; more is a typing error and could not be allocated."""
MAX_PROJECTOR_LAYERS = 64
"""Largest number of projector layers, for the same reason."""


class Range(NamedTuple):
    """Range of valid values, for annotations such as `Annotated[float, Range(...)]`."""

    holds: Callable[[Any], bool]
    """Function that returns True for a valid value."""
    hint: str
    """End of the error message for an invalid value."""


Weight = Annotated[float, Range(math.isfinite, "give a finite number")]
Positive = Annotated[float, Range(lambda x: 0 < x < math.inf, "give a number above 0")]
NotNegative = Annotated[float, Range(lambda x: 0 <= x < math.inf, "give 0 or more")]
Share = Annotated[float, Range(lambda x: 0 <= x <= 1, "give 0 to 1")]
Inertia = Annotated[float, Range(lambda x: 0 <= x < 1, "give 0 or more, and less than 1")]
"""Decay of an exponential moving average; with 1, the average would never change."""
Count = Annotated[int, Range(lambda x: 1 <= x < 1 << 31, "give at least 1")]
Several = Annotated[int, Range(lambda x: 2 <= x < 1 << 31, "give at least 2")]
Length = Annotated[int, Range(lambda x: 0 <= x < 1 << 31, "give 0 or more")]
Pixels = Annotated[int, Range(lambda x: 1 <= x <= MAX_WIDTH, f"give 1 to {MAX_WIDTH} pixels")]
ViewCount = Annotated[int, Range(lambda x: 1 <= x <= 1000, "give 1 to 1000 views")]
HueShift = Annotated[float, Range(lambda x: 0 <= x <= 0.5, "give 0 to 0.5 of the color circle")]
Pair = tuple[float, float]
ShareBounds = Annotated[Pair, Range(lambda x: 0 < x[0] <= x[1] <= 1, "give 0 < low ≤ high ≤ 1")]
"""Bounds of a share that is drawn."""
PositiveBounds = Annotated[Pair, Range(lambda x: 0 < x[0] <= x[1] < INF, "give 0 < low ≤ high, finite")]
"""Bounds of a positive number that is drawn."""


def _require(condition: bool, name: str, value: object, hint: str) -> None:
    if not condition:
        raise ConfigError(name, value, hint)


def _require_ranges(settings: object, prefix: str) -> None:
    """Check the fields of a dataclass by the ranges in their annotations: `Share`, `Count | None`."""
    for name, hint in typing.get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        for kind in (hint, *typing.get_args(hint)):
            if typing.get_origin(kind) is Annotated and value is not None:
                allowed = kind.__metadata__[0]
                _require(allowed.holds(value), prefix + name, value, allowed.hint)


@dataclass(frozen=True)
class ViewSpec:
    """Augmentation that makes the views of one kind. A view set is a tuple of these.

    Random operations are off unless their probability is given.
    """

    size: Pixels = 32
    """Pixels along each side of a view."""
    count: ViewCount = 1
    """Number of views of this kind for each image."""
    scale: ShareBounds = (0.08, 1.0)
    """Range of the share of the image's area that a crop covers."""
    ratio: PositiveBounds = (3 / 4, 4 / 3)
    """Range of a crop's aspect ratio, width over height."""
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    """Interpolation that resizes a crop to the size of the view."""
    flip: Share = 0.0
    """Probability of a horizontal flip."""
    jitter: Share = 0.0
    """Probability of color jitter: brightness, contrast, saturation and hue, in random order."""
    brightness: NotNegative = 0.4
    """Strength of the brightness jitter: the factor is drawn from 1 ± this."""
    contrast: NotNegative = 0.4
    """Strength of the contrast jitter: the factor is drawn from 1 ± this."""
    saturation: NotNegative = 0.4
    """Strength of the saturation jitter: the factor is drawn from 1 ± this."""
    hue: HueShift = 0.1
    """Largest shift of the hue, as a share of the color circle; at most 0.5."""
    gray: Share = 0.0
    """Probability that a view is converted to grayscale."""
    blur: Share = 0.0
    """Probability of a Gaussian blur."""
    sigma: PositiveBounds = (0.1, 2.0)
    """Range of the standard deviation of the blur, in pixels of the view."""
    solarize: Share = 0.0
    """Probability that a view is solarized."""

    def __post_init__(self) -> None:
        _require_ranges(self, "views.")


@dataclass(frozen=True)
class Data:
    """Images that a run trains and is tested on."""

    source: str = "cifar10-mini"
    """Images to train on: a folder, a list, an archive, an array, or the name of a data set."""
    root: str | None = None
    """Folder that holds a data set given by name; without it, the data set is downloaded."""
    fraction: float = 1.0
    """Share of the images of each class that is used for training."""
    fraction_seed: int = 0
    """Seed that selects the images of `fraction`; it is not the run's seed, so that runs with different seeds
    train on the same images."""
    size: int | None = None
    """Pixels along the shorter side of decoded images; files are resized to it."""
    keep_aspect: bool | None = None
    """Whether views are cropped from whole images, at their own aspect ratios, instead of from their central
    squares; true for new runs, and false for runs of version 0.1.0."""
    eval_size: int | None = None
    """Pixels along each side of the central squares that the encoder reads, in evaluation and in use; by
    default at which they look as in the largest views, or the stored size if there are `network.weights`."""
    max_bad: float = 0.01
    """Largest share of unreadable files that a run tolerates; ten are always tolerated."""
    labels: str | None = None
    """CSV file with the columns `path` and `label`, for images that are not in class folders."""
    test: str | None = None
    """Images of the test split, with labels: a folder of class folders, or any other kind of `source`."""
    workers: int | None = None
    """Number of threads that decode files; by default one for each core."""

    def __post_init__(self) -> None:
        _require_ranges(self, "data.")
        _require(self.workers is None or self.workers >= 1, "data.workers", self.workers, "give at least 1")
        _require(0 < self.fraction <= 1, "data.fraction", self.fraction, "give a share, 0 < share ≤ 1")
        _require(0 <= self.max_bad <= 1, "data.max_bad", self.max_bad, "give a share between 0 and 1")
        for name in ("size", "eval_size"):
            value = getattr(self, name)
            _require(value is None or value >= 4, f"data.{name}", value, "give at least 4 pixels")

    def opening(self) -> dict[str, Any]:
        """Return the settings that open the data set; the others are about views and encoder."""
        return {name: value for name, value in vars(self).items() if name not in ("keep_aspect", "eval_size")}


@dataclass(frozen=True)
class Network:
    """Backbone and projector of a run."""

    backbone: str = "resnet18"
    """Name of the backbone: any model of timm (`frossl list backbones`)."""
    width: float = 1.0
    """Width of the backbone: its numbers of channels as a multiple of the architecture's own."""
    stages: int | None = None
    """Number of stages of a ResNet that are kept, from the first on; small images need fewer."""
    stem: Literal["native", "small", "fast"] | None = None
    """Stem of the backbone: `native` as in timm; for small images `small` (stride 1) or `fast` (stride 2),
    both without pooling."""
    channels: int | None = None
    """Number of input channels; by default that of the images."""
    weights: str | None = None
    """Local file of initial weights for the backbone: safetensors or a torch state dict."""
    freeze: int = 0
    """Number of frozen layers, from the first on: 1 freezes the stem, 2 the first block too, and so on."""
    drop_path: float = 0.0
    """Stochastic depth: probability that a block of the backbone is skipped, rising linearly to this value at
    the last block."""
    projector_hidden: int = 2048
    """Width of the projector's hidden layers."""
    projector_out: int = 1024
    """Number of outputs of the projector, that is the dimension of the embeddings."""
    projector_layers: int = 3
    """Number of linear layers of the projector."""
    projector_norm: bool = False
    """Whether the projector ends with a BatchNorm."""

    def __post_init__(self) -> None:
        _require_ranges(self, "network.")
        _require(0 < self.width <= 16, "network.width", self.width, "give a multiple up to 16, such as 0.5")
        for name in ("stages", "channels", "projector_hidden", "projector_out"):
            value = getattr(self, name)
            fits = value is None or 1 <= value <= MAX_WIDTH
            _require(fits, f"network.{name}", value, f"give 1 to {MAX_WIDTH}")
        layers = self.projector_layers
        most = MAX_PROJECTOR_LAYERS
        _require(1 <= layers <= most, "network.projector_layers", layers, f"give 1 to {most}")
        _require(self.freeze >= 0, "network.freeze", self.freeze, "give the number of layers, 0 for none")
        _require(0 <= self.drop_path < 1, "network.drop_path", self.drop_path, "give 0 ≤ probability < 1")


@dataclass(frozen=True)
class Objective:
    """Method of a run, and its options."""

    method: str = "frossl"
    """Name of the method (see `frossl list methods`), or `FILE.py:NAME` for a class in your own file, which
    is executed."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the method's objective, by name; options that are not given have their default."""
    digest: str | None = None
    """Identity of the code of a method that is not built in: the SHA-256 of its file, or name and version of
    the installed package. A run is resumed only with the same code."""


@dataclass(frozen=True)
class Optim:
    """Optimizer and learning-rate schedule."""

    optimizer: Literal["lars", "sgd", "adam", "adamw"] = "adamw"
    """Optimizer that updates the weights."""
    base_lr: float = 0.002
    """Peak learning rate for a batch of 256 images (or of `optim.lr_batch`); it is scaled linearly with the
    batch size."""
    lr_batch: int = 256
    """Batch size that `base_lr` refers to."""
    weight_decay: float = 1e-4
    """Strength of the weight decay."""
    momentum: float = 0.9
    """Momentum of LARS and SGD; Adam and AdamW ignore it."""
    schedule: Literal["cosine", "wsd"] = "cosine"
    """Learning-rate schedule after the warm-up: `cosine` decays to zero; `wsd` (warm-up, stable, decay) stays
    constant and then decays linearly to zero."""
    warmup: float = 0.05
    """Share of the steps over which the learning rate rises linearly from zero."""
    decay: float = 0.2
    """Share of the steps over which the learning rate of `wsd` decays."""
    clip: float | None = None
    """Largest norm of the gradient; longer gradients are scaled down to it."""
    layer_decay: float = 1.0
    """Layer-wise learning-rate decay: the rate of each backbone layer as a multiple of the next layer's."""

    def __post_init__(self) -> None:
        _require_ranges(self, "optim.")
        _require(0 < self.base_lr < INF, "optim.base_lr", self.base_lr, "give a positive rate")
        _require(self.lr_batch >= 1, "optim.lr_batch", self.lr_batch, "give at least 1")
        decay = self.weight_decay
        _require(0 <= decay < INF, "optim.weight_decay", decay, "give 0 or more, finite")
        _require(0 <= self.momentum < 1, "optim.momentum", self.momentum, "give 0 ≤ momentum < 1")
        for name in ("warmup", "decay"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"optim.{name}", value, "give a share of the steps, 0 ≤ share < 1")
        _require(self.clip is None or self.clip > 0, "optim.clip", self.clip, "give a positive length")
        _require(0 < self.layer_decay <= 1, "optim.layer_decay", self.layer_decay, "give 0 < share ≤ 1")

    def lr(self, batch_size: int) -> float:
        """Return the peak learning rate, which is linear in the batch size."""
        return self.base_lr * batch_size / self.lr_batch


def steps_per_epoch(images: int, batch_size: int) -> int:
    """Return the number of steps in which every image is seen about once; the rest of a batch is dropped."""
    return images // min(batch_size, images)


@dataclass(frozen=True)
class Settlement:
    """New length of a run, set while it trained so that it ends within its time budget."""

    step: Count
    """First step that the new length holds for."""
    total: Count
    """Number of steps of the run from then on."""

    def __post_init__(self) -> None:
        _require_ranges(self, "train.settlements.")
        _require(self.total > self.step, "train.settlements.total", self.total, "give more than its step")


@dataclass(frozen=True)
class Train:
    """Length of a run, its batches, its hardware, its logs and its checkpoints."""

    epochs: int = 100
    """Number of passes over the training images."""
    steps: int | None = None
    """Number of training steps; if given, it replaces `epochs`. A time budget is converted to it."""
    settlements: tuple[Settlement, ...] = ()
    """Changes of the number of steps that kept a run within its time budget, in the order of their steps.
    Schedules go on from where they are, and end with the run. A configuration with settlements repeats the
    run."""
    batch_size: int = 256
    """Number of images in a step, over all processes."""
    micro_batch_size: int | None = None
    """Number of images that each process forwards at once, to save memory; the gradient stays that of the
    whole batch."""
    devices: int | None = None
    """Number of processes on each node; by default one, or as many as torchrun or SLURM has started."""
    num_nodes: int | None = None
    """Number of nodes, each of which runs the same command; by default one, or as many as torchrun or
    SLURM has started."""
    seed: int = 0
    """Seed of the initial weights, the order of the images and the views; the same seed on the same
    machine gives the same weights."""
    precision: Precision | None = None
    """Floating-point precision: `32-true`, or `bf16-mixed` for automatic mixed precision with bfloat16;
    by default the faster one on this machine, by timing on a CPU."""
    channels_last: bool | None = None
    """Whether networks and images use the channels-last memory format; by default they do, unless the other
    one is faster on this CPU, by timing."""
    device: Device | None = None
    """Device to train on; by default the fastest that is available."""
    threads: int | None = None
    """Number of CPU threads that torch uses in each process; by default one for each core that it may use.
    Another number rounds sums in another order."""
    together: bool = False
    """Whether views of one size are forwarded as one batch, and all views through the projector as one batch,
    so that BatchNorm computes its statistics over them jointly."""
    view_kernel: ViewKernel | None = None
    """Implementation of the augmentation; by default `numba` (compiled loops) on a CPU if it is installed,
    else `torch`."""
    loggers: tuple[Logger, ...] = ()
    """Experiment loggers that receive the metrics, besides metrics.jsonl: `tensorboard`, `wandb`,
    `mlflow`."""
    log_every: int = 10
    """Steps between two records in metrics.jsonl."""
    checkpoint_every: int | None = None
    """Steps between checkpoints."""
    checkpoint_minutes: float | None = None
    """Minutes between checkpoints; five if `checkpoint_every` is not given either."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints that are kept."""

    def __post_init__(self) -> None:
        _require_ranges(self, "train.")
        counts = (
            "epochs",
            "steps",
            "log_every",
            "checkpoint_every",
            "keep_checkpoints",
            "devices",
            "num_nodes",
            "threads",
        )
        for name in counts:
            value = getattr(self, name)
            _require(value is None or value >= 1, f"train.{name}", value, "give at least 1")
        given, starts = self.settlements, [one.step for one in self.settlements]
        rising = starts == sorted(set(starts)) and all(a.total > b.step for a, b in pairwise(given))
        fits = not given or (self.steps is not None and self.steps > given[0].step)
        _require(rising and fits, "train.settlements", starts, "give rising steps within train.steps")
        micro, minutes = self.micro_batch_size, self.checkpoint_minutes
        _require(micro is None or micro >= 2, "train.micro_batch_size", micro, "give at least 2 images")
        _require(minutes is None or minutes > 0, "train.checkpoint_minutes", minutes, "give more than 0")
        repeated = len(set(self.loggers)) < len(self.loggers)
        _require(not repeated, "train.loggers", self.loggers, "name each once")
        for logger in self.loggers:
            if logger not in typing.get_args(Logger):
                raise unknown("logger", logger, typing.get_args(Logger))
        _require(self.batch_size >= 2, "train.batch_size", self.batch_size, "give at least 2 images")
        _require(0 <= self.seed < 1 << 31, "train.seed", self.seed, "give 0 to 2147483647")

    def length(self, per_epoch: int) -> int:
        """Return the number of steps of a run whose epochs have `per_epoch` steps."""
        return self.settlements[-1].total if self.settlements else self.steps or self.epochs * per_epoch


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics that a run computes while it trains."""

    every: int = 50
    """Steps between diagnostics of the embeddings; more are computed at steps that are evenly spaced on a
    logarithmic axis."""
    share: float = 0.03
    """Largest share of the training time that diagnostics and online kNN may take; they are computed less
    often if they would take more. With 1 they are never skipped."""
    probe: bool = True
    """Whether a linear probe is trained online if there are labels; it sends no gradient to the networks."""
    knn: bool = True
    """Whether kNN accuracy on unaugmented images is measured from time to time if there are labels."""
    stop: bool = True
    """Whether a run ends when its embeddings have collapsed to one point."""

    def __post_init__(self) -> None:
        _require_ranges(self, "diagnostics.")
        _require(self.every >= 1, "diagnostics.every", self.every, "give at least 1")
        _require(0 <= self.share <= 1, "diagnostics.share", self.share, "give a share of the time, 0 to 1")


@dataclass(frozen=True)
class Config:
    """Complete configuration of a run."""

    data: Data = field(default_factory=Data)
    """Images that the run trains and is tested on."""
    network: Network = field(default_factory=Network)
    """Backbone and projector."""
    objective: Objective = field(default_factory=Objective)
    """Method and its options."""
    optim: Optim = field(default_factory=Optim)
    """Optimizer and learning-rate schedule."""
    train: Train = field(default_factory=Train)
    """Length of the run, batches, hardware, logs and checkpoints."""
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    """Diagnostics that are computed while the run trains."""
    view_set: str | None = None
    """Name of a predefined view set (`frossl list views`), in place of views that are listed one by one."""
    views: tuple[ViewSpec, ...] = ()
    """Kinds of views; each entry has its own augmentation."""
    transform: str | None = None
    """Name of the user's function that makes the views, if there is one; only size and count of `views` then
    apply."""

    def __post_init__(self) -> None:
        both = self.view_set is not None and bool(self.views)
        _require(not both, "view_set", self.view_set, "views are given too; give one of them")

    def to_toml(self) -> str:
        """Return the configuration as TOML; fields that are None are left out."""
        return tomli_w.dumps(_without_none(dataclasses.asdict(self)))

    def with_settings(self, settings: Mapping[str, Any]) -> Config:
        """Return a copy with other values.

        Args:
            settings: Values by dotted name, such as `{"optim.weight_decay": 0.05}`. A `view_set` replaces
                the present `views`, and `train.steps` the present `train.settlements`.

        Raises:
            InputError: If a name is unknown or a value is not valid.
        """
        table = tomllib.loads(self.to_toml())
        for name, value in settings.items():
            *parts, last = name.split(".")
            inner = table
            for i, part in enumerate(parts):
                inner = inner.setdefault(part, {})
                if not isinstance(inner, dict):
                    raise ConfigError(name, value, f"{'.'.join(parts[: i + 1])} is no table of settings")
            inner[last] = value
        if "view_set" in settings:
            table.pop("views", None)
        if "train.steps" in settings and "train.settlements" not in settings:
            table["train"].pop("settlements", None)
        return _build(Config, table, "")

    @classmethod
    def from_toml(
        cls,
        text: str,
        *,
        method: str | None = None,
        views: int | None = None,
        known: Collection[str] = (),
    ) -> Config:
        """Parse a configuration from TOML.

        A `[methods.NAME]` table holds what a method changes in the rest of the file. It applies if `NAME` is
        the selected method; options of other methods are dropped. An `at_views.N` table within it holds what
        changes in addition when N views are requested.

        Args:
            text: The TOML text.
            method: The method to select; by default the one that the file names.
            views: The number of views that is requested; by default that of the file.
            known: Valid names for the `[methods.NAME]` tables; empty to accept any.

        Raises:
            InputError: If the text is not TOML, a name is unknown, or nothing is set for `views`.
            ConfigError: If a value has the wrong type or is out of range.
        """
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"the configuration is not TOML: {error}; check that line") from None
        for name in ("methods", "objective"):
            if not isinstance(table.get(name, {}), dict):
                raise ConfigError(name, table[name], "expected a table")
        for name in table.get("methods", {}):
            if known and name not in known:
                raise unknown("method", name, known)
        changes, own = table.pop("methods", {}), table.get("objective", {}).get("method", Objective.method)
        if not isinstance(own, str):
            raise ConfigError("objective.method", own, "expected str")
        if method is not None and method != own:
            table["objective"] = {"method": method}
        change = changes.get(method or own, {})
        if not isinstance(change, dict):
            raise ConfigError(f"methods.{method or own}", change, "expected a table")
        by_views, place = change.pop("at_views", {}), f"methods.{method or own}.at_views"
        if not isinstance(by_views, dict) or not all(isinstance(more, dict) for more in by_views.values()):
            raise ConfigError(place, by_views, "expected tables, by the number of views")
        for given, other in (("views", "view_set"), ("view_set", "views")):
            if given in change:
                table.pop(other, None)
        table = _merged(table, change)
        config = _build(cls, table, "")
        _warn_of_bare_views(table, config.views)
        count = sum(spec.count for spec in config.views)
        if not by_views or views in (None, count):
            return config
        if str(views) not in by_views:
            described = ", ".join(map(str, [count, *by_views]))
            raise InputError(
                f"the configuration has no settings for {views} views; give one of {described}, "
                f"or write a table [{place}.{views}]"
            )
        return _build(cls, _merged(table, by_views[str(views)]), "")

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        method: str | None = None,
        views: int | None = None,
        known: Collection[str] = (),
    ) -> Config:
        """Read a configuration from a TOML file; the other arguments are those of `from_toml`."""
        if b"\0" in path.read_bytes():
            raise InputError(f"{path} is not a text file; give a TOML file")
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        return cls.from_toml(text, method=method, views=views, known=known)


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse settings from the command line, such as `optim.weight_decay=0.05`.

    Args:
        texts: Settings as `NAME=VALUE`. A value is parsed as TOML; if it is not TOML, it is taken as text.

    Returns:
        Values by dotted name, as `Config.with_settings` takes them.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not given or not name.strip():
            raise InputError(f"{text!r} is no setting; give NAME=VALUE, such as optim.weight_decay=0.05")
        try:
            settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name.strip()] = value
    return settings


ON_IN_VERSION_0_1_0 = ("flip", "jitter", "gray", "blur")
"""Operations of a `ViewSpec` that were on by default in version 0.1.0, and are off now."""


def _warn_of_bare_views(table: Mapping[str, Any], views: Sequence[ViewSpec]) -> None:
    """Warn of views that only crop, as files for version 0.1.0 may have them, unless the file says so."""
    names = ON_IN_VERSION_0_1_0
    for given, spec in zip(table.get("views", ()), views, strict=True):
        if not any(getattr(spec, name) for name in names) and not set(names) <= given.keys():
            logging.getLogger("frossl").warning(
                "views of %d px are only cropped, as operations that are not named are off; name those that "
                "you want: %s",
                spec.size,
                ", ".join(names),
            )
            break


def _merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `table` updated with `changes`; nested tables are merged."""
    merged = dict(table)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _merged(old, value)
        else:
            merged[key] = value
    return merged


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(v) for v in value]
    return value


def _build(kind: type[T], given: dict[str, Any], prefix: str) -> T:
    """Build a dataclass from a table; unknown keys and wrong types are errors."""
    hints = typing.get_type_hints(kind)
    for key in given:
        if key not in hints:
            raise unknown("setting", prefix + key, [prefix + name for name in hints])
    return kind(**{key: convert(hints[key], value, prefix + key) for key, value in given.items()})


def convert(hint: Any, value: Any, name: str) -> Any:
    """Convert a value to an annotated type.

    Args:
        hint: The type annotation: a type, a union, a Literal, a tuple, or Annotated with a `Range`.
        value: The value, as TOML or a caller gives it.
        name: The dotted name of the setting, for error messages.

    Raises:
        ConfigError: If the value has another type or is out of range.
    """
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return _build(hint, value, name + ".")
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kind, allowed = arguments
        converted = convert(kind, value, name)
        _require(allowed.holds(converted), name, value, allowed.hint)
        return converted
    if origin is dict and isinstance(value, dict):
        return value
    if origin in (types.UnionType, typing.Union):
        if any(isinstance(value, a) for a in arguments if isinstance(a, type) and a not in (int, float)):
            return value
        return convert(next(a for a in arguments if a is not type(None)), value, name)
    if origin is Literal:
        if value not in arguments:
            raise unknown(f"value of {name}", str(value), [str(a) for a in arguments])
        return value
    if origin is tuple and isinstance(value, list):
        if arguments[-1] is Ellipsis:
            return tuple(convert(arguments[0], item, name) for item in value)
        if len(value) == len(arguments):
            return tuple(convert(a, item, name) for a, item in zip(arguments, value, strict=True))
    if hint is Any or type(value) is hint:
        return value
    number = {int: Integral, float: Real}.get(hint)  # numpy's scalars are accepted too
    if number is not None and not isinstance(value, bool) and isinstance(value, number):
        with contextlib.suppress(OverflowError):
            return hint(value)
    if hint is bool and str(value).lower() in ("true", "false"):
        raise ConfigError(name, value, f"expected bool; write {str(value).lower()}")
    expected = hint.__name__ if isinstance(hint, type) else str(hint)
    raise ConfigError(name, value, f"expected {expected}")
