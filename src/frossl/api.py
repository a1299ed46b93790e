"""The verbs, as Python functions. The command line calls these."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from PIL import Image
from rich.console import Console
from rich.markup import escape
from torch import Tensor

import frossl.engine as engine
from frossl.artifacts import load_encoder, save_encoder
from frossl.augment import VIEW_SETS, Augment, OwnViews, Transform, view_sheet
from frossl.config import Config, Data, Network, Objective, ViewSpec
from frossl.data import LARGEST, NAMED, Dataset, Findings, Names, Source, look_through, open_dataset
from frossl.data import pack as pack_images
from frossl.errors import InputError, TrainingError, unknown
from frossl.evaluation import (
    Labelled,
    Score,
    bag_of_features,
    extract,
    few_label_accuracy,
    knn_accuracy,
    labelled_split,
    logistic_accuracy,
    pixels,
)
from frossl.live import Bar, Counting, Patient, PlainLines
from frossl.methods import METHODS
from frossl.networks import Encoder, timm_names
from frossl.runs import RunFolder, bad_file_lines, command_line, provenance
from frossl.types import Clock, Watch

__all__ = [
    "Comparison",
    "Demo",
    "Run",
    "check",
    "demo",
    "knn",
    "load_encoder",
    "pack",
    "pretrain",
    "recipes",
    "replay",
    "resume",
    "views",
]


@dataclass(frozen=True)
class Comparison:
    """One protocol on three rows: the images themselves, the network before training, and after."""

    protocol: str
    note: str
    """Where the test images come from."""
    pixels: Score
    untrained: Score
    trained: Score

    def percents(self) -> dict[str, float]:
        return {name: round(getattr(self, name).percent, 2) for name in ROWS}

    def deviations(self) -> dict[str, float]:
        return {name: round(getattr(self, name).deviation, 2) for name in ROWS}


T = TypeVar("T")

LARGEST_STORED = {"cpu": 128, "cuda": 256, "mps": 256}
"""Pixels along the side of stored images where none are asked for: what the device can afford."""

ROWS = ("pixels", "untrained", "trained")


@dataclass(frozen=True)
class Run:
    """A run folder, to be asked."""

    path: Path

    @property
    def config(self) -> Config:
        return Config.read(RunFolder.open(self.path).config_file)

    @property
    def status(self) -> dict[str, Any]:
        """`state` (running, finished, stopped, failed), `step`, `total`, `reason`."""
        return RunFolder.open(self.path).read_status()

    @property
    def interrupted(self) -> bool:
        """Stopped by a signal before its end (and not by FROSSL_MAX_STEPS)."""
        status = self.status
        return bool(status["state"] == "stopped" and status["reason"] != "FROSSL_MAX_STEPS")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return list(RunFolder.open(self.path).metrics)

    def encoder(self) -> Encoder:
        return load_encoder(self.path)

    def knn(self, *, k: int | None = None, crops: int | None = None) -> Comparison:
        return knn(self.path, k=k, crops=crops)


@dataclass(frozen=True)
class Demo:
    """What `demo` found out."""

    run: Run
    seconds: float
    comparisons: dict[str, Comparison]
    """By protocol: `knn`, `probe10`, `probe`. Empty if the run was stopped before its end."""


def pretrain(
    data: str | Path,
    *,
    out: str | Path | None = None,
    config: Config | None = None,
    method: str | None = None,
    backbone: str | None = None,
    width: float | None = None,
    views: int | None = None,
    view_set: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    micro_batch_size: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    checkpoint_every: int | None = None,
    checkpoint_minutes: float | None = None,
    root: str | Path | None = None,
    fraction: float | None = None,
    max_bad: float | None = None,
    weights: str | Path | None = None,
    loggers: Sequence[str] = (),
    watches: Sequence[Watch] = (),
    transform: Transform | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Learn an encoder from unlabelled images.

    data: a folder of images, a list of paths, an archive, an array, or the name of a data set. out: where
    the run is kept (runs/NAME if not given). config: where to start from (the `default` recipe if not
    given); the other arguments override it. lr: rate per 256 images. weights: a local file to start from.
    root: the folder of a data set given by its name. fraction: the share of every class that is learned
    from. max_bad: the share of files that may be unreadable. transform: your own function that makes views
    (see `Transform`), in place of a view set; where it makes one at a time, `views` says how many. loggers:
    tensorboard, wandb, mlflow. watches: who looks at the steps (see `Watch`). Ends early, with a checkpoint,
    on Ctrl-C; `resume` goes on from there.

    batch_size: images of a step, over all processes; micro_batch_size: how many of them a process takes
    through the networks at once. With devices and num_nodes each process runs the script from its beginning
    up to here, and goes on with what follows: see docs/scale.md.
    """
    if (same := _run_of_this_job(out, data)) is not None:
        return resume(same, watches=watches, transform=transform, quiet=quiet)
    console = _console(quiet)
    config = config or recipe("default", method=method)
    if method is not None and method != config.objective.method:
        config = replace(config, objective=Objective(method))  # options are another method's
    config = replace(
        config,
        data=_data(config.data, data, root=root, fraction=fraction, max_bad=max_bad),
        network=_network(config.network, backbone, width, weights),
        optim=_given(config.optim, base_lr=lr),
        train=_given(
            config.train,
            epochs=epochs,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            seed=seed,
            devices=devices,
            num_nodes=num_nodes,
            checkpoint_every=checkpoint_every,
            checkpoint_minutes=checkpoint_minutes,
            loggers=tuple(loggers) or None,
        ),
    )
    engine.check(config)
    out = Path(out) if out is not None else _free_folder(Path("runs") / _slug(data))
    RunFolder.check_free(out, overwrite=overwrite)
    largest = LARGEST_STORED[config.train.device or engine.best_device()]
    dataset = _opened(config, console, largest=largest)
    if view_set is not None:
        config = replace(config, view_set=view_set, views=())
    config = engine.settle(config, dataset, views=views, transform=transform)
    engine.build_method(config)  # refuse what cannot be built while there is still nothing on disk
    fabric = engine.launch(config.train)
    folder = RunFolder(out)
    if fabric.is_global_zero:
        _create(folder, config, dataset, overwrite=overwrite)
    return _train(config, dataset, folder, console, watches, fabric, transform=transform)


def _create(folder: RunFolder, config: Config, dataset: Dataset, *, overwrite: bool) -> None:
    """A run folder with all that a resume needs."""
    source = dataset.train.source
    RunFolder.create(folder.path, overwrite=overwrite)
    if source.names is not None:
        source.names.write(folder.index)
    origin = provenance(
        seed=config.train.seed,
        index_digest=source.digest,
        images=len(source),
        weights_digest=_digest(config.network.weights),
    )
    folder.write_json("provenance.json", origin)
    folder.write_text(folder.config_file.name, config.to_toml())


def resume(
    run: str | Path,
    *,
    epochs: int | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    watches: Sequence[Watch] = (),
    transform: Transform | None = None,
    quiet: bool = False,
) -> Run:
    """Go on with a run that was stopped, from its newest checkpoint, as if it had never stopped.

    Everything is read from the run folder, but `watches` and `transform`, which are functions. epochs: a new
    end, for a finished run too; rates and other schedules are then those of a run of that length from its
    beginning. devices, num_nodes: another number of processes.
    """
    console, folder = _console(quiet), RunFolder.open(run)
    old = Config.read(folder.config_file)
    config = replace(old, train=_given(old.train, epochs=epochs, devices=devices, num_nodes=num_nodes))
    new_end = config.train.epochs != old.train.epochs
    if folder.read_status()["state"] == "finished" and folder.encoder.is_file() and not new_end:
        _say(console, f"{run} is finished; there is nothing to resume (--epochs gives it a new end)")
        return Run(folder.path)
    config, dataset = _reopened(config, folder, console)
    done, images, train = folder.read_status()["step"], len(dataset.train.source), config.train
    if new_end and train.epochs * (images // min(images, train.batch_size)) <= done:
        raise InputError(f"{run} has done {done} steps already; {train.epochs} epochs end before that")
    fabric = engine.launch(train)
    if fabric.is_global_zero and new_end:
        folder.encoder.unlink(missing_ok=True)  # the old end's
    before = old.train.epochs
    return _train(config, dataset, folder, console, watches, fabric, transform=transform, before=before)


def replay(run: str | Path, *, transform: Transform | None = None) -> engine.Replay:
    """Make the step again at which a run became not finite, and look where. Writes nothing.

    transform: the run's own, if it had one.
    """
    folder = RunFolder.open(run)
    if not folder.bad_batch.is_file():
        raise InputError(f"{run} holds no bad_batch.json: none of its steps was bad; `frossl resume` goes on")
    bad = folder.read_json(folder.bad_batch.name)
    config, dataset = _reopened(Config.read(folder.config_file), folder, _console(quiet=True))
    config = replace(config, train=replace(config.train, devices=1, num_nodes=1))
    state = engine.build(config, dataset, folder, transform=transform)
    engine.restore(state)
    if not state.step <= bad["step"] < state.loader.last:
        raise InputError(f"{run} is at step {state.step}, and its bad step {bad['step']} is not ahead of it")
    return engine.replay(state, bad["step"])


def _opened(config: Config, console: Console, *, largest: int = LARGEST) -> Dataset:
    """The images, with a word of how many files there are while a folder is indexed for the first time."""
    data = config.data
    with console.status(f"opening {escape(data.source)}") as status:

        def found(count: int) -> None:
            status.update(f"indexing {escape(data.source)}: {count:,} files")

        return open_dataset(**vars(data), largest=largest, found=found)


def _reopened(config: Config, folder: RunFolder, console: Console) -> tuple[Config, Dataset]:
    """The settled configuration and the data of a run that goes on; they must be what it began with."""
    engine.check(config)
    dataset = _opened(config, console)
    _check_same(config, folder, dataset)
    if not any(folder.checkpoints.iterdir()):
        _check_weights(config, folder.read_json("provenance.json"))
    return engine.settle(config, dataset), dataset


def _check_same(config: Config, folder: RunFolder, dataset: Dataset) -> None:
    """The images must be those that the run began with."""
    known, source = folder.read_json("provenance.json"), dataset.train.source
    if source.digest != known["index_digest"]:
        raise InputError(
            f"{config.data.source} holds other images than this run began with ({len(source)} now, "
            f"{known['images']} then{_changes(folder, source)}); put them back, or start a new run"
        )


def _changes(folder: RunFolder, source: Source) -> str:
    """Which files came and went since the run began."""
    if source.names is None or not folder.index.is_file():
        return ""
    now, then = set(source.names), set(Names.read(folder.index))
    said = [
        f"{len(names)} {how}, such as {min(names)!r}"
        for how, names in (("new", now - then), ("gone", then - now))
        if names
    ]
    return ": " + "; ".join(said or ["the same names, of other sizes"])


def _run_of_this_job(out: str | Path | None, data: str | Path) -> Path | None:
    """The run that this job of SLURM began before it was put back in line, if there is one."""
    job = os.environ.get("SLURM_JOB_ID")
    if not int(os.environ.get("SLURM_RESTART_COUNT") or 0):
        return None
    name = Path(out) if out is not None else Path("runs") / _slug(data)
    for path in [name] if out is not None else sorted(name.parent.glob(f"{name.name}*")):
        folder = RunFolder(path)
        if not folder.config_file.is_file() or not (path / "provenance.json").is_file():
            continue
        known = folder.read_json("provenance.json")
        if (known.get("job"), known["command"]) == (job, command_line()):
            return path
    return None


def knn(run: str | Path, *, k: int | None = None, crops: int | None = None) -> Comparison:
    """Accuracy of k nearest neighbours by cosine, beside raw pixels and the untrained network.

    k is 20 if not given, or all labelled images if there are fewer. crops: the features of an image are the
    mean over so many random crops, cut as the run's largest views are, in place of the whole image.
    """
    if crops is not None and not 1 <= crops <= 1000:
        raise InputError(f"crops = {crops}; give 1 to 1000 crops of each image")
    return _compare(run, ["knn"], k=k, crops=crops)["knn"]


def pack(
    data: str | Path,
    *,
    out: str | Path,
    size: int | None = None,
    root: str | Path | None = None,
    fraction: float | None = None,
    max_bad: float | None = None,
    quiet: bool = False,
) -> Path:
    """Decode images once, to raw pixels of one size in a folder that `pretrain` takes as data.

    size: pixels along each side; the typical size of the images up to 256, if not given. What was begun goes
    on where it stood; what is complete is checked.
    """
    console = _console(quiet)
    config = Config(data=_data(Data(size=size), data, root=root, fraction=fraction, max_bad=max_bad))
    dataset = _opened(config, console)
    if size not in (None, dataset.size):
        raise InputError(
            f"{data} holds pixels of {dataset.size} px, which are packed as they are; leave out --size"
        )
    with Counting(console, f"packing {data} at {dataset.size} px") as counting:
        pack_images(dataset, Path(out), progress=counting.update)
    parts = [dataset.train, *([dataset.test] if dataset.test is not None else [])]
    bad, file = [part.source.bad_files() for part in parts], Path(out) / "bad_files.txt"
    if any(bad):
        file.write_text(bad_file_lines(bad), encoding="utf-8")
        _say(console, f"{sum(map(len, bad))} files could not be read and are left out: {file}")
    return Path(out)


def check(
    data: str | Path,
    *,
    root: str | Path | None = None,
    quiet: bool = False,
) -> Findings:
    """Look through data before a long run: decode every image, and find those that are there twice.

    Nothing is written. Images that are both learned from and tested on are named: they flatter a figure.
    """
    console = _console(quiet)
    dataset = _opened(Config(data=_data(Data(max_bad=1.0), data, root=root)), console)
    with Counting(console, f"looking through {data}") as counting:
        return look_through(dataset, progress=counting.update)


def views(
    data: str | Path,
    *,
    out: str | Path = "views.png",
    config: Config | None = None,
    view_set: str | None = None,
    views: int | None = None,
    images: int = 8,
    seed: int | None = None,
    root: str | Path | None = None,
) -> Path:
    """Draw what the networks would see: some images, each with its views of the first epoch beside it."""
    if images < 1:
        raise InputError(f"images = {images}; give at least 1")
    config = config or recipe("default")
    train = _given(config.train, seed=seed)
    config = replace(config, data=_data(config.data, data, root=root), train=train)
    if view_set is not None:
        config = replace(config, view_set=view_set, views=())
    largest = LARGEST_STORED[config.train.device or engine.best_device()]
    dataset = _opened(config, _console(quiet=True), largest=largest)
    config = engine.settle(config, dataset, views=views)
    path = Path(out)
    try:
        _draw_views(config, dataset, path, images=images)
    except (OSError, ValueError) as error:  # a folder that is not there, an ending that Pillow does not know
        raise InputError(
            f"cannot write {out} ({error}); give a .png file in a folder that is there"
        ) from None
    return path


def _draw_views(
    config: Config, dataset: Dataset, path: Path, *, images: int = 8, transform: Transform | None = None
) -> None:
    source = dataset.train.source
    chosen = torch.linspace(0, len(source) - 1, min(images, len(source))).round().long()
    batch = source.read(chosen)
    clock, channels = Clock(step=0, total=1, epoch=0, seed=config.train.seed), batch.images.shape[1]
    if transform is None:
        made = Augment(config.views, mean=(0.0,) * channels, std=(1.0,) * channels)(batch, clock)
    else:
        own = OwnViews(transform, views=sum(spec.count for spec in config.views))
        made = [_stretched(views) for views in own(batch, clock)]
    Image.fromarray(view_sheet(batch.images, made).numpy()).save(path)


def _stretched(views: Tensor) -> Tensor:
    """Views on whatever scale, each from its darkest to its brightest."""
    low, high = views.amin((2, 3, 4), keepdim=True), views.amax((2, 3, 4), keepdim=True)
    return (views - low) / (high - low).clamp_min(1e-6)


def demo(
    *,
    out: str | Path | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Demo:
    """Train on a small real data set for a few minutes and say what was learned.

    A machine that would need longer than seven minutes for the recipe gets fewer epochs, unless `epochs` is
    given: the first steps are timed, thrown away, and what was settled is written into the configuration.
    """
    began = time.monotonic()
    console, config = _console(quiet), recipe("demo")
    out = Path(out) if out is not None else _free_folder(Path("runs") / "demo")
    RunFolder.check_free(out, overwrite=overwrite)
    if epochs is None:
        epochs = _epochs_within(DEMO_SECONDS, config, console)
    run = pretrain(
        config.data.source,
        out=out,
        config=config,
        epochs=epochs,
        seed=seed,
        overwrite=overwrite,
        quiet=quiet,
    )
    if run.interrupted:
        return Demo(run, time.monotonic() - began, {})
    _say(console, "evaluating: raw pixels, the untrained network, the trained one")
    comparisons = _compare(run.path, PROTOCOLS)
    return Demo(run, time.monotonic() - began, comparisons)


DEMO_SECONDS = 7 * 60


def _epochs_within(seconds: float, config: Config, console: Console) -> int:
    """The recipe's epochs, or as many as fit in the time on this machine."""
    dataset = open_dataset(config.data.source)
    step = engine.seconds_per_step(engine.settle(config, dataset), dataset)
    epoch = step * (len(dataset.train.source) // config.train.batch_size)
    epochs = max(1, min(config.train.epochs, int(seconds / epoch)))
    minutes = epochs * epoch / 60
    _say(console, f"a step takes {step:.2f} s here: {epochs} epochs in about {minutes:.1f} minutes")
    return epochs


RECIPES = resources.files("frossl") / "recipes"


def recipes() -> dict[str, str]:
    """Names of the complete runs that come with frossl, each with the first line of its file."""
    files = sorted(RECIPES.iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
        .partition("\n")[0]
        .removeprefix("# ")
        for file in files
        if file.name.endswith(".toml")
    }


def recipe(name: str, *, method: str | None = None) -> Config:
    """A complete run by its name, for its own method or another."""
    if name not in recipes():
        raise unknown("recipe", name, recipes())
    return Config.from_toml(RECIPES.joinpath(f"{name}.toml").read_text(encoding="utf-8"), method=method)


def _train(
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    console: Console,
    watches: Sequence[Watch],
    fabric: Fabric,
    *,
    transform: Transform | None = None,
    before: int | None = None,
) -> Run:
    """before: the epochs of a run that is resumed, until now."""
    console.quiet = console.quiet or not fabric.is_global_zero
    with engine.talking(lambda: "before the first step"):
        engine.barrier()  # the folder is there
        state = engine.build(config, dataset, folder, fabric, transform)
        wrote = engine.restore(state)
        seen = (dataset.train.source.digest, state.step, state.loader.last, _shared(config))
        if len(set(engine.everyones(seen))) > 1:
            raise InputError(
                "processes disagree on images, settings or checkpoint; start the same command on every node, "
                "with the same data and an --out that they share"
            )
    if state.first and config != Config.read(folder.config_file):
        folder.write_text(folder.config_file.name, config.to_toml())
    if state.first and not folder.views.is_file():
        with contextlib.suppress(TrainingError):  # of bad files the run itself will tell
            _draw_views(config, dataset, folder.views, transform=transform)
    _announce(state, console, wrote, before or config.train.epochs)
    largest_rank = min(state.loader.batch_size, config.network.projector_out)
    screen = (Bar if console.is_terminal else PlainLines)(
        console, largest_rank=largest_rank, start=state.step
    )
    with screen:
        engine.fit(state, screen, watches)
    if state.first:
        mean, std = dataset.statistics
        save_encoder(Encoder(state.method.encoder, size=dataset.size, mean=mean, std=std), folder)
    with contextlib.suppress(RuntimeError):
        engine.barrier()  # what starts processes may end all of them with the first that ends
    if bad := dataset.train.source.bad_files():
        _say(console, f"{len(bad)} files could not be read, others took their place: {folder.bad_files}")
    return Run(folder.path)


def _shared(config: Config) -> str:
    """What must be the same for every process: all but where things lie."""
    data, network = replace(config.data, source=""), replace(config.network, weights=None)
    return replace(config, data=data, network=network).to_toml()


def _announce(state: engine.State, console: Console, wrote: int, before: int) -> None:
    """What is about to be done, in three lines, and what changes in a resumed run.

    wrote: how many processes wrote its checkpoint. before: how many epochs it was to have.
    """
    config, loader = state.config, state.loader
    network, optim = config.network, config.optim
    sizes = " + ".join(f"{spec.count} × {spec.size} px" for spec in config.views)
    parameters = sum(p.numel() for p in state.method.encoder.parameters()) / 1e6
    rate = optim.lr(loader.batch_size)
    _say(
        console,
        f"{len(loader.source):,} images of {config.data.size} px from {config.data.source}; views {sizes}",
        f"{config.objective.method}, {network.backbone} (width {network.width:g}, stem {network.stem}, "
        f"{parameters:.2f} M parameters), {config.train.device}, {config.train.precision}",
        f"{config.train.epochs} epochs of {loader.steps_per_epoch} steps, batch {loader.batch_size}; "
        f"{optim.optimizer}, rate {optim.base_lr:g} per {optim.lr_batch} images = {rate:g}",
    )
    if loader.batch_size < config.train.batch_size:
        _say(
            console, f"fewer images than a batch of {config.train.batch_size}: every batch holds all of them"
        )
    here = loader.processes
    if here > 1 or config.train.micro_batch_size is not None:
        share = -(-loader.batch_size // here)
        at_once = min(share, config.train.micro_batch_size or share)
        _say(console, f"{here} process{'es' * (here > 1)}, each with {share} images, {at_once} at once")
    if state.step:
        _say(console, f"going on from step {state.step}")
    if before != config.train.epochs:
        now = loader.clock(state.step)
        then = replace(now, total=before * loader.steps_per_epoch)
        _say(
            console,
            f"{before} epochs become {config.train.epochs}: rates and other schedules are those of the new "
            f"length from here on (rate {state.lr(now):.3g}, where it would have been {state.lr(then):.3g})",
        )
    if wrote != here:
        _say(
            console,
            f"processes so far: {wrote}, from here on: {here}; batches and views stay the same, sums are "
            "rounded in another order, and BatchNorm on a CPU sees another share of the batch",
        )


DEFAULT_K = 20

PROTOCOLS = {
    "knn": "kNN, k {k}",
    "probe10": "probe, 10 labels a class",
    "probe": "probe, all labels",
}


def _compare(
    run: str | Path, protocols: Collection[str], *, k: int | None = None, crops: int | None = None
) -> dict[str, Comparison]:
    """Measure the three rows by each protocol, and keep the figures in the run folder."""
    folder = RunFolder.open(run)
    config = Config.read(folder.config_file)
    device = config.train.device if config.train.device != "cuda" else engine.best_device()
    trained = load_encoder(run).to(device)
    _check_weights(config, folder.read_json("provenance.json"))
    dataset = _opened(config, _console(quiet=True))
    _check_same(config, folder, dataset)
    split = labelled_split(dataset)
    untrained = trained.with_backbone(engine.build_method(config).encoder).to(device)
    largest = max(config.views, key=lambda spec: spec.size)

    def features(encoder: Encoder, images: Labelled) -> tuple[Tensor, Tensor]:
        if crops is None:
            return extract(encoder, images)
        return bag_of_features(encoder, images, largest, crops=crops)

    rows = {
        "pixels": (*pixels(split.bank), *pixels(split.test)),
        "untrained": (*features(untrained, split.bank), *features(untrained, split.test)),
        "trained": (*features(trained, split.bank), *features(trained, split.test)),
    }
    k = min(DEFAULT_K, len(rows["pixels"][0])) if k is None else k
    measure: dict[str, Callable[..., Score]] = {
        "knn": partial(knn_accuracy, k=k),
        "probe10": few_label_accuracy,
        "probe": logistic_accuracy,
    }
    comparisons = {}
    for name in protocols:
        scores = {row: measure[name](*four) for row, four in rows.items()}
        protocol = PROTOCOLS[name].format(k=k) + (f", bag of {crops} crops" if crops else "")
        comparison = Comparison(protocol, split.note, **scores)
        comparisons[name] = comparison
        folder.evaluation.append(
            {
                "step": folder.read_status()["step"],
                "protocol": comparison.protocol,
                "note": comparison.note,
                "images": len(rows["pixels"][-1]),
                "percent": comparison.percents(),
                "deviation": comparison.deviations(),
            }
        )
    return comparisons


def _given(part: T, **values: Any) -> T:
    """The dataclass with those of the values that were given."""
    return replace(part, **{name: value for name, value in values.items() if value is not None})  # type: ignore[type-var]


def _network(
    network: Network, backbone: str | None, width: float | None, weights: str | Path | None
) -> Network:
    """Another backbone than the configuration's comes as it is: its cuts were made for the other one."""
    if backbone is not None and backbone != network.backbone:
        network = replace(network, backbone=backbone, width=1.0, stages=None, stem=None)
    file = weights or network.weights
    return _given(network, width=width, weights=file and str(Path(file).expanduser().absolute()))


def _digest(weights: str | None) -> str | None:
    return None if weights is None else hashlib.sha256(Path(weights).read_bytes()).hexdigest()


def _check_weights(config: Config, known: dict[str, Any]) -> None:
    """The file that a run began with must still be that file, where it is read again."""
    file = config.network.weights
    if file is not None and (not Path(file).is_file() or _digest(file) != known.get("weights_digest")):
        raise InputError(f"this run began from {file}, which is gone or changed; put it back")


def _data(config: Data, source: str | Path, *, root: str | Path | None = None, **given: Any) -> Data:
    """Paths are made absolute: a run must find its images again from anywhere."""
    path, name = Path(os.path.expanduser(source)), str(source)
    if name.strip() and name not in NAMED and path.exists():
        name = str(path.absolute())
    folder = None if root is None else str(Path(os.path.expanduser(root)).absolute())
    return _given(config, source=name, root=folder, **given)


def _slug(data: str | Path) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(data).absolute().name).strip("-.") or "run"


def _free_folder(path: Path) -> Path:
    """`path`, or path-2, path-3, … : the first that does not exist."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _console(quiet: bool) -> Console:
    return Patient(stderr=True, quiet=quiet)


def _say(console: Console, *lines: str) -> None:
    """Plain text: a path may hold what rich takes for markup, and must not be broken."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def names(kind: str | None = None) -> dict[str, dict[str, str]]:
    """What can be named, by kind, with a few words; `backbones` (over a thousand) only when asked for."""
    known = {
        "methods": {name: _about(METHODS[name].objective) for name in sorted(METHODS)},
        "data": {name: named.about for name, named in NAMED.items()},
        "views": {name: " + ".join(map(_in_words, specs)) for name, specs in VIEW_SETS.items()},
        "recipes": recipes(),
    }
    if kind is None:
        return known
    if kind == "backbones":
        return {kind: dict.fromkeys(timm_names(), "")}
    if kind not in known:
        raise unknown("kind of name", kind, [*known, "backbones"])
    return {kind: known[kind]}


def _about(kind: type) -> str:
    """The first line of what the file of a class says of itself."""
    return (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0]


def _in_words(spec: ViewSpec) -> str:
    low, high = spec.scale
    strengths = "/".join(f"{x:g}" for x in (spec.brightness, spec.contrast, spec.saturation, spec.hue))
    solarized = f", solarized {spec.solarize:g}" if spec.solarize else ""
    return f"{low:g}–{high:g} of the image, jitter {strengths}, blur {spec.blur:g}{solarized}"
