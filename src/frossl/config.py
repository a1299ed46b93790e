"""A run as data: frozen dataclasses, TOML in and out.

An absent key is None, which means "settled when the run is built"; what was settled is written back, so
that `config.toml` repeats the run. Derived values are methods. No torch here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
WIDEST = 1 << 16
"""Channels or pixels: what has more is a slip, and cannot be allocated."""
DEEPEST = 64
"""Layers of a projector, for the same reason."""


class Range(NamedTuple):
    """Which numbers are meant, where a type alone does not say: `Annotated[float, Range(...)]`."""

    holds: Callable[[float], bool]
    hint: str


Weight = Annotated[float, Range(math.isfinite, "give a finite number")]
Positive = Annotated[float, Range(lambda x: 0 < x < math.inf, "give a number above 0")]
NotNegative = Annotated[float, Range(lambda x: 0 <= x < math.inf, "give 0 or more")]
Share = Annotated[float, Range(lambda x: 0 <= x <= 1, "give 0 to 1")]
Inertia = Annotated[float, Range(lambda x: 0 <= x < 1, "give 0 or more, and less than 1")]
"""How much of the past stays in a running mean, which would never move with 1."""
Count = Annotated[int, Range(lambda x: 1 <= x < 1 << 31, "give at least 1")]
Several = Annotated[int, Range(lambda x: 2 <= x < 1 << 31, "give at least 2")]
Length = Annotated[int, Range(lambda x: 0 <= x < 1 << 31, "give 0 or more")]


def _require(condition: bool, name: str, value: object, hint: str) -> None:
    if not condition:
        raise ConfigError(name, value, hint)


@dataclass(frozen=True)
class ViewSpec:
    """How views of one kind are made from an image. A view set is a tuple of these."""

    size: int = 32
    """Pixels along each side."""
    count: int = 1
    """How many views of this kind."""
    scale: tuple[float, float] = (0.08, 1.0)
    """Share of the image's area that a crop covers."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width over height of a crop."""
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    flip: float = 0.5
    """Probability of a horizontal flip."""
    jitter: float = 0.8
    """Probability that the four adjustments below are made, in random order."""
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    gray: float = 0.2
    """Probability."""
    blur: float = 0.5
    """Probability."""
    sigma: tuple[float, float] = (0.1, 2.0)
    """Deviation of the blur in pixels of the view."""
    solarize: float = 0.0
    """Probability."""

    def __post_init__(self) -> None:
        _require(1 <= self.size <= WIDEST, "views.size", self.size, f"give 1 to {WIDEST} pixels")
        _require(1 <= self.count <= 1000, "views.count", self.count, "give 1 to 1000 views")
        low, high = self.scale
        _require(0 < low <= high <= 1, "views.scale", self.scale, "give 0 < low ≤ high ≤ 1")
        low, high = self.ratio
        _require(0 < low <= high < INF, "views.ratio", self.ratio, "give 0 < low ≤ high, finite")
        low, high = self.sigma
        _require(0 < low <= high < INF, "views.sigma", self.sigma, "give 0 < low ≤ high, finite")
        for name in ("flip", "jitter", "gray", "blur", "solarize"):
            value = getattr(self, name)
            _require(0 <= value <= 1, f"views.{name}", value, "a probability is between 0 and 1")
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            _require(0 <= value < INF, f"views.{name}", value, "a strength is finite and not negative")
        _require(0 <= self.hue <= 0.5, "views.hue", self.hue, "give 0 to 0.5 of the color circle")


@dataclass(frozen=True)
class Data:
    """Which images."""

    source: str = "cifar10-mini"
    """A folder, a list, an archive, an array, or the name of a data set."""
    root: str | None = None
    """The folder of a data set that has a name, where it is not fetched."""
    fraction: float = 1.0
    """The share of every class that is learned from."""
    fraction_seed: int = 0
    """Chooses that share; not the run's seed, so that runs with several seeds learn from the same images."""
    size: int | None = None
    """Pixels along each side of the stored images; larger ones are scaled and cut to a central square."""
    max_bad: float = 0.01
    """Share of the files that may be unreadable; ten always may."""
    labels: str | None = None
    """A CSV file with the columns `path` and `label`, for images that do not lie in class folders."""
    test: str | None = None
    """Images to be tested on: a folder of class folders, or whatever else `source` may be."""
    workers: int | None = None
    """Threads that decode files; as many as there are cores, if not given."""

    def __post_init__(self) -> None:
        _require(self.workers is None or self.workers >= 1, "data.workers", self.workers, "give at least 1")
        _require(0 < self.fraction <= 1, "data.fraction", self.fraction, "give a share, 0 < share ≤ 1")
        _require(0 <= self.max_bad <= 1, "data.max_bad", self.max_bad, "give a share between 0 and 1")
        _require(self.size is None or self.size >= 4, "data.size", self.size, "give at least 4 pixels")


@dataclass(frozen=True)
class Network:
    """Which networks."""

    backbone: str = "resnet18"
    """Any name that timm knows."""
    width: float = 1.0
    """Channels as a multiple of the architecture's own."""
    stages: int | None = None
    """Keep the first stages only (ResNets): small images are small before the last."""
    stem: Literal["native", "small", "fast"] | None = None
    """`native` as timm has it; for small images `small` (stride 1) or `fast` (stride 2), without pooling."""
    channels: int | None = None
    """Of the images; those of the data if not given."""
    weights: str | None = None
    """A local file to start from: safetensors, or a torch state dict, of that backbone."""
    freeze: int = 0
    """How many of the first layers stay as they are: 1 is the stem, 2 the first block too, and so on."""
    drop_path: float = 0.0
    """Probability that a block of the backbone is skipped, rising to this at the last one."""
    projector_hidden: int = 2048
    projector_out: int = 1024
    projector_layers: int = 3
    projector_norm: bool = False
    """End the projector with a BatchNorm."""

    def __post_init__(self) -> None:
        _require(0 < self.width <= 16, "network.width", self.width, "give a multiple up to 16, such as 0.5")
        for name in ("stages", "channels", "projector_hidden", "projector_out"):
            value = getattr(self, name)
            fits = value is None or 1 <= value <= WIDEST
            _require(fits, f"network.{name}", value, f"give 1 to {WIDEST}")
        layers = self.projector_layers
        _require(1 <= layers <= DEEPEST, "network.projector_layers", layers, f"give 1 to {DEEPEST}")
        _require(self.freeze >= 0, "network.freeze", self.freeze, "give how many layers stay, 0 for none")
        _require(0 <= self.drop_path < 1, "network.drop_path", self.drop_path, "give 0 ≤ probability < 1")


@dataclass(frozen=True)
class Objective:
    """Which method, and the arguments of its objective where they are not the default."""

    method: str = "frossl"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Optim:
    """How weights move."""

    optimizer: Literal["lars", "sgd", "adam", "adamw"] = "adamw"
    base_lr: float = 0.002
    """Rate for a batch of `lr_batch` images; the rate used is `lr(batch_size)`."""
    lr_batch: int = 256
    weight_decay: float = 1e-4
    momentum: float = 0.9
    """Of LARS and SGD."""
    schedule: Literal["cosine", "wsd"] = "cosine"
    """After the warm-up: `cosine` falls to zero, `wsd` stays and then falls to zero in a line."""
    warmup: float = 0.05
    """Share of the steps over which the rate rises from zero."""
    decay: float = 0.2
    """Share of the steps over which the rate of `wsd` falls."""
    clip: float | None = None
    """Gradients longer than this are scaled down to it."""
    layer_decay: float = 1.0
    """Each layer of the backbone moves at this share of the rate of the next."""

    def __post_init__(self) -> None:
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
        """The peak rate: linear in the batch."""
        return self.base_lr * batch_size / self.lr_batch


@dataclass(frozen=True)
class Train:
    """How long, how much at once, on what."""

    epochs: int = 100
    steps: int | None = None
    """End after so many steps, whatever the epochs: what a budget of time is settled to."""
    batch_size: int = 256
    """Images of a step, over all processes."""
    micro_batch_size: int | None = None
    """Images that go through the networks at once, on each process, where memory is short."""
    devices: int | None = None
    """Processes on each node; one if not given, or those that torchrun or SLURM has started."""
    num_nodes: int | None = None
    seed: int = 0
    precision: Precision | None = None
    channels_last: bool | None = None
    device: Device | None = None
    together: bool = False
    """Forward the views of one size as one batch, and all through the projector as one: BatchNorm sees them
    at once."""
    view_kernel: ViewKernel | None = None
    """What makes views: on a CPU `numba` (compiled loops) where it is installed, else `torch`."""
    loggers: tuple[Logger, ...] = ()
    """Who is told besides metrics.jsonl."""
    log_every: int = 10
    checkpoint_every: int | None = None
    """Steps between checkpoints."""
    checkpoint_minutes: float | None = None
    """Minutes between checkpoints; five where neither is given."""
    keep_checkpoints: int = 2
    """How many of the newest are kept."""

    def __post_init__(self) -> None:
        counts = (
            "epochs",
            "steps",
            "log_every",
            "checkpoint_every",
            "keep_checkpoints",
            "devices",
            "num_nodes",
        )
        for name in counts:
            value = getattr(self, name)
            _require(value is None or value >= 1, f"train.{name}", value, "give at least 1")
        micro, minutes = self.micro_batch_size, self.checkpoint_minutes
        _require(micro is None or micro >= 2, "train.micro_batch_size", micro, "give at least 2 images")
        _require(minutes is None or minutes > 0, "train.checkpoint_minutes", minutes, "give more than 0")
        twice = len(set(self.loggers)) < len(self.loggers)
        _require(not twice, "train.loggers", self.loggers, "name each once")
        for logger in self.loggers:
            if logger not in typing.get_args(Logger):
                raise unknown("logger", logger, typing.get_args(Logger))
        _require(self.batch_size >= 2, "train.batch_size", self.batch_size, "give at least 2 images")
        _require(0 <= self.seed < 1 << 31, "train.seed", self.seed, "give 0 to 2147483647")


@dataclass(frozen=True)
class Diagnostics:
    """What a run finds out about itself while it trains."""

    every: int = 50
    """Steps between looks at the embeddings, besides those that are evenly spread on a logarithmic axis."""
    share: float = 0.03
    """Of the time, at most: looks and online kNN come less often where they would cost more. 1 is always."""
    probe: bool = True
    """Train a linear probe beside the networks, where there are labels. They never feel it."""
    knn: bool = True
    """Ask the nearest neighbours of unaugmented images now and then, where there are labels."""
    stop: bool = True
    """End a run that has collapsed to one point."""

    def __post_init__(self) -> None:
        _require(self.every >= 1, "diagnostics.every", self.every, "give at least 1")
        _require(0 <= self.share <= 1, "diagnostics.share", self.share, "give a share of the time, 0 to 1")


@dataclass(frozen=True)
class Config:
    """Everything that defines a run."""

    data: Data = field(default_factory=Data)
    network: Network = field(default_factory=Network)
    objective: Objective = field(default_factory=Objective)
    optim: Optim = field(default_factory=Optim)
    train: Train = field(default_factory=Train)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    view_set: str | None = None
    """The name of the set that views are taken from, where none are given."""
    views: tuple[ViewSpec, ...] = ()
    transform: str | None = None
    """The name of the user's function that makes views, where one does; of `views`, size and count hold."""

    def __post_init__(self) -> None:
        both = self.view_set is not None and bool(self.views)
        _require(not both, "view_set", self.view_set, "views are given too; give one of them")

    def to_toml(self) -> str:
        return tomli_w.dumps(_without_none(dataclasses.asdict(self)))

    def with_settings(self, settings: Mapping[str, Any]) -> Config:
        """With other values, by their dotted names: `{"optim.weight_decay": 0.05}`."""
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
        """A run from its TOML.

        `[methods.NAME]` tables say what a method changes in the rest of the file. They count for the method
        that is asked for (else the file's own), and other methods' options are left out. In them,
        `at_views.N` tables say what it changes besides when N views are asked for. known: the names that
        may stand there, if given.
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
        by_number, place = change.pop("at_views", {}), f"methods.{method or own}.at_views"
        if not isinstance(by_number, dict) or not all(isinstance(more, dict) for more in by_number.values()):
            raise ConfigError(place, by_number, "expected tables, by the number of views")
        for given, other in (("views", "view_set"), ("view_set", "views")):
            if given in change:
                table.pop(other, None)
        table = _merged(table, change)
        config = _build(cls, table, "")
        count = sum(spec.count for spec in config.views)
        if not by_number or views in (None, count):
            return config
        if str(views) not in by_number:
            described = ", ".join(map(str, [count, *by_number]))
            raise InputError(
                f"the configuration has no settings for {views} views; give one of {described}, "
                f"or write a table [{place}.{views}]"
            )
        return _build(cls, _merged(table, by_number[str(views)]), "")

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        method: str | None = None,
        views: int | None = None,
        known: Collection[str] = (),
    ) -> Config:
        if b"\0" in path.read_bytes():
            raise InputError(f"{path} is not a text file; give a TOML file")
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        return cls.from_toml(text, method=method, views=views, known=known)


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """`optim.weight_decay=0.05` by its name; a value is TOML, or text where it is none."""
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


def _merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`table` with the values of `changes`, table by table."""
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
    """A dataclass from a table, refusing unknown keys and wrong types."""
    hints = typing.get_type_hints(kind)
    for key in given:
        if key not in hints:
            raise unknown("setting", prefix + key, [prefix + name for name in hints])
    return kind(**{key: convert(hints[key], value, prefix + key) for key, value in given.items()})


def convert(hint: Any, value: Any, name: str) -> Any:
    """`value` as the type that `hint` asks for; a ConfigError by that name if it is none, or out of range."""
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
    number = {int: Integral, float: Real}.get(hint)  # numpy's numbers are some too
    if number is not None and not isinstance(value, bool) and isinstance(value, number):
        with contextlib.suppress(OverflowError):
            return hint(value)
    if hint is bool and str(value).lower() in ("true", "false"):
        raise ConfigError(name, value, f"expected bool; write {str(value).lower()}")
    expected = hint.__name__ if isinstance(hint, type) else str(hint)
    raise ConfigError(name, value, f"expected {expected}")
