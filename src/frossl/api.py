"""The verbs, as Python functions. The command line calls these."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Console

import frossl.engine as engine
from frossl.artifacts import load_encoder, save_encoder
from frossl.augment import VIEW_SETS
from frossl.config import Config
from frossl.data import NAMED, Dataset, open_dataset
from frossl.errors import InputError, unknown
from frossl.evaluation import (
    LabelledSplit,
    Score,
    extract,
    few_label_accuracy,
    knn_accuracy,
    labelled_split,
    logistic_accuracy,
    pixels,
)
from frossl.live import Bar, PlainLines
from frossl.methods import METHODS
from frossl.networks import Encoder, timm_names
from frossl.runs import RunFolder, provenance

__all__ = ["Comparison", "Demo", "Run", "demo", "knn", "load_encoder", "pretrain", "recipes", "resume"]


@dataclass(frozen=True)
class Comparison:
    """One protocol on three rows: the images themselves, the network before training, and after."""

    protocol: str
    pixels: Score
    untrained: Score
    trained: Score

    def percents(self) -> dict[str, float]:
        return {name: round(getattr(self, name).percent, 2) for name in ROWS}

    def deviations(self) -> dict[str, float]:
        return {name: round(getattr(self, name).deviation, 2) for name in ROWS}


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
    def metrics(self) -> list[dict[str, Any]]:
        return list(RunFolder.open(self.path).metrics)

    def encoder(self) -> Encoder:
        return load_encoder(self.path)

    def knn(self, *, k: int = 20) -> Comparison:
        return knn(self.path, k=k)


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
    lr: float | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Learn an encoder from unlabelled images.

    data: a folder of images, or the name of a data set. out: where the run is kept (runs/NAME if not
    given). config: where to start from (the `default` recipe if not given); the other arguments override
    it. lr: rate per 256 images. Ends early, with a checkpoint, on Ctrl-C; `resume` goes on from there.
    """
    console = _console(quiet)
    config = config or recipe("default")
    config = replace(
        config,
        data=replace(config.data, source=_absolute(data)),
        network=_given(config.network, backbone=backbone, width=width),
        objective=_given(config.objective, method=method),
        optim=_given(config.optim, base_lr=lr),
        train=_given(config.train, epochs=epochs, batch_size=batch_size, seed=seed),
    )
    if views is not None or view_set is not None:
        config = replace(config, views=())
    out = Path(out) if out is not None else _free_folder(Path("runs") / _slug(data))
    RunFolder.check_free(out, overwrite=overwrite)
    dataset = open_dataset(config.data.source, size=config.data.size)
    config = engine.settle(config, dataset, views=views or 2, view_set_name=view_set)
    engine.build_method(config)  # refuse what cannot be built while there is still nothing on disk
    folder = RunFolder.create(out, overwrite=overwrite)
    folder.write_text(folder.config_file.name, config.to_toml())
    source = dataset.train.source
    folder.write_json(
        "provenance.json", provenance(seed=config.train.seed, index_digest=source.digest, images=len(source))
    )
    return _train(folder, dataset, console)


def resume(run: str | Path, *, quiet: bool = False) -> Run:
    """Go on with a run that was stopped, from its newest checkpoint, as if it had never stopped."""
    console, folder = _console(quiet), RunFolder.open(run)
    if folder.read_status()["state"] == "finished":
        console.print(f"{run} is finished; there is nothing to resume")
        return Run(folder.path)
    config = Config.read(folder.config_file)
    dataset = open_dataset(config.data.source, size=config.data.size)
    known, source = folder.read_json("provenance.json"), dataset.train.source
    if source.digest != known["index_digest"]:
        raise InputError(
            f"{config.data.source} holds other images than this run began with ({len(source)} now, "
            f"{known['images']} then); put them back, or start a new run"
        )
    return _train(folder, dataset, console)


def knn(run: str | Path, *, k: int = 20) -> Comparison:
    """Accuracy of k nearest neighbours by cosine, beside raw pixels and the untrained network."""
    result = _compare(run, ["knn"], k=k)
    return result["knn"]


def demo(
    *, out: str | Path | None = None, seed: int | None = None, overwrite: bool = False, quiet: bool = False
) -> Demo:
    """Train on a small real data set for a few minutes and say what was learned."""
    began = time.monotonic()
    out = out if out is not None else _free_folder(Path("runs") / "demo")
    run = pretrain(
        "cifar10-mini", out=out, config=recipe("demo"), seed=seed, overwrite=overwrite, quiet=quiet
    )
    if run.status["state"] == "stopped" and run.status["reason"] != "FROSSL_MAX_STEPS":
        return Demo(run, time.monotonic() - began, {})
    console = _console(quiet)
    console.print("evaluating: raw pixels, the untrained network, the trained one")
    comparisons = _compare(run.path, list(PROTOCOLS), k=20)
    return Demo(run, time.monotonic() - began, comparisons)


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


def recipe(name: str) -> Config:
    if name not in recipes():
        raise unknown("recipe", name, recipes())
    return Config.from_toml(RECIPES.joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def _train(folder: RunFolder, dataset: Dataset, console: Console) -> Run:
    config = Config.read(folder.config_file)
    state = engine.build(config, dataset, folder)
    engine.restore(state)
    _announce(state, console)
    largest_rank = min(state.loader.batch_size, config.network.projector_out)
    screen = (Bar if console.is_terminal else PlainLines)(
        console, largest_rank=largest_rank, start=state.step
    )
    with screen:
        engine.fit(state, screen)
    mean, std = dataset.statistics
    save_encoder(Encoder(state.method.encoder, size=dataset.size, mean=mean, std=std), folder)
    bad = dataset.train.source.bad_files()
    if bad:
        console.print(f"{len(bad)} files could not be read and were replaced: {folder.bad_files}")
    return Run(folder.path)


def _announce(state: engine.State, console: Console) -> None:
    """What is about to be done, in three lines."""
    config, loader = state.config, state.loader
    sizes = " + ".join(f"{spec.count} × {spec.size} px" for spec in config.views)
    parameters = sum(p.numel() for p in state.method.encoder.parameters())
    console.print(
        f"{len(loader.source):,} images of {config.data.size} px from {config.data.source}; views {sizes}",
        highlight=False,
    )
    console.print(
        f"{config.objective.method}, {config.network.backbone} (width {config.network.width:g}, "
        f"stem {config.network.stem}, {parameters / 1e6:.2f} M parameters), {config.train.device}, "
        f"{config.train.precision}",
        highlight=False,
    )
    peak = config.optim.lr(loader.batch_size)
    console.print(
        f"{config.train.epochs} epochs of {loader.steps_per_epoch} steps, batch {loader.batch_size}; "
        f"{config.optim.optimizer} at {config.optim.base_lr:g} per {config.optim.lr_batch} images = {peak:g}",
        highlight=False,
    )
    if loader.batch_size < config.train.batch_size:
        console.print(
            f"fewer images than a batch of {config.train.batch_size}: every batch holds all of them"
        )
    if state.step:
        console.print(f"going on from step {state.step}")


PROTOCOLS = {
    "knn": "kNN, cosine, k {k}",
    "probe10": "logistic probe, 10 labels per class",
    "probe": "logistic probe, all labels",
}


def _compare(run: str | Path, protocols: list[str], *, k: int) -> dict[str, Comparison]:
    """Measure the three rows by each protocol, and keep the figures in the run folder."""
    folder = RunFolder.open(run)
    config = Config.read(folder.config_file)
    trained = load_encoder(run)
    data = open_dataset(config.data.source, size=config.data.size)
    split = labelled_split(data)
    untrained = untrained_encoder(config, trained)
    rows = {
        "pixels": (pixels(split.bank, split.bank_ids), pixels(split.test, split.test_ids)),
        "untrained": _features(untrained, split),
        "trained": _features(trained, split),
    }
    comparisons = {}
    for name in protocols:
        scores = {row: _score(name, bank, test, split, k=k) for row, (bank, test) in rows.items()}
        comparisons[name] = Comparison(PROTOCOLS[name].format(k=k), **scores)
        folder.evaluation.append(
            {
                "step": folder.read_status()["step"],
                "protocol": comparisons[name].protocol,
                "test": split.note,
                "images": len(split.test_ids),
                "percent": comparisons[name].percents(),
                "deviation": comparisons[name].deviations(),
            }
        )
    return comparisons


def _score(protocol: str, bank: Any, test: Any, split: LabelledSplit, *, k: int) -> Score:
    arguments = (bank, split.bank_labels, test, split.test_labels)
    if protocol == "knn":
        return knn_accuracy(*arguments, k=k)
    return few_label_accuracy(*arguments) if protocol == "probe10" else logistic_accuracy(*arguments)


def _features(encoder: Encoder, split: LabelledSplit) -> tuple[Any, Any]:
    return extract(encoder, split.bank, split.bank_ids), extract(encoder, split.test, split.test_ids)


def untrained_encoder(config: Config, like: Encoder) -> Encoder:
    """The run's network as it was before its first step."""
    method = engine.build_method(config)
    return Encoder(
        method.encoder, size=like.size, mean=like.mean.flatten().tolist(), std=like.std.flatten().tolist()
    )


def _given(part: Any, **values: Any) -> Any:
    """The dataclass with those of the values that were given."""
    return replace(part, **{name: value for name, value in values.items() if value is not None})


def _absolute(data: str | Path) -> str:
    """A run must find its folder again from anywhere."""
    return str(data) if str(data) in NAMED else str(Path(data).expanduser().absolute())


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
    return Console(stderr=True, quiet=quiet)


def names(kind: str | None = None) -> dict[str, list[str]]:
    """What can be named, by kind; `backbones` (over a thousand) only when asked for."""
    known = {
        "methods": sorted(METHODS),
        "data": list(NAMED),
        "views": list(VIEW_SETS),
        "recipes": list(recipes()),
    }
    if kind is None:
        return known
    if kind == "backbones":
        return {kind: timm_names()}
    if kind not in known:
        raise unknown("kind of name", kind, [*known, "backbones"])
    return {kind: known[kind]}
