"""Train an encoder, go on, look at a bad step again."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rich.console import Console

import frossl.engine as engine
from frossl.api.catalog import recipe
from frossl.api.closing import close
from frossl.api.looking import draw_views
from frossl.api.measuring import BRIEF
from frossl.api.planning import Budget, Plan, make_plan
from frossl.api.run import Run
from frossl.api.shared import (
    LARGEST_STORED,
    check_same,
    check_weights,
    console_of,
    data_of,
    digest,
    given,
    opened,
    say,
)
from frossl.artifacts import load_encoder, save_encoder, write_card
from frossl.augment import Transform
from frossl.config import Config, Network, Objective, Precision, Train
from frossl.data import Dataset
from frossl.errors import FrosslError, InputError, TrainingError, unknown
from frossl.live import screen
from frossl.networks import Encoder
from frossl.reporting import write_report
from frossl.runs import RunFolder, command_line, is_run, provenance
from frossl.runs.folder import remove_if_empty
from frossl.runs.lock import HEARTBEAT, STALE
from frossl.runs.record import is_count
from frossl.types import Watch, own_random_numbers

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Choices(TypedDict, total=False):
    """What `pretrain` and `plan` let one choose; see `pretrain`."""

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


def pretrain(
    data: str | Path,
    *,
    out: str | Path | None = None,
    config: Config | None = None,
    settings: Mapping[str, Any] | None = None,
    method: str | None = None,
    backbone: str | None = None,
    width: float | None = None,
    views: int | None = None,
    view_set: str | None = None,
    epochs: int | None = None,
    budget: str | float | Budget | None = None,
    batch_size: int | None = None,
    micro_batch_size: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    precision: Precision | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    checkpoint_every: int | None = None,
    checkpoint_minutes: float | None = None,
    root: str | Path | None = None,
    fraction: float | None = None,
    max_bad: float | None = None,
    labels: str | Path | None = None,
    test: str | Path | None = None,
    workers: int | None = None,
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
    given); settings override it, by their dotted names ({"optim.weight_decay": 0.05}), and the other
    arguments override both. lr: rate per 256 images. weights: a local file to start from. root: the folder
    of a data set given by its name. fraction: the share of every class that is learned from. max_bad: the
    share of files that may be unreadable. labels: a CSV file (path, label), for images that do not lie in
    class folders; test: images to be tested on. Neither is learned from. workers: threads that decode.
    transform: your own function that makes views (see `Transform`), in place of a view set; where it makes
    one at a time, `views` says how many. loggers: tensorboard, wandb, mlflow. watches: who looks at the steps
    (see `Watch`). Ends early, with a checkpoint, on Ctrl-C; `resume` goes on from there.

    budget: the time that all of it may take, evaluation and report included, as "30m", "1h30m" or seconds:
    the first steps are timed and thrown away, and the number of steps settled by that.

    batch_size: images of a step, over all processes; micro_batch_size: how many of them a process takes
    through the networks at once. With devices and num_nodes each process runs the script from its beginning
    up to here, and goes on with what follows: see docs/scale.md.
    """
    began = time.monotonic()
    if (same := _run_of_this_job(out, data)) is not None:
        return resume(same, watches=watches, transform=transform, quiet=quiet)
    console = console_of(quiet)
    choices = Choices(
        config=config,
        settings=settings,
        method=method,
        backbone=backbone,
        width=width,
        views=views,
        view_set=view_set,
        epochs=epochs,
        budget=budget,
        batch_size=batch_size,
        micro_batch_size=micro_batch_size,
        lr=lr,
        seed=seed,
        precision=precision,
        devices=devices,
        num_nodes=num_nodes,
        checkpoint_every=checkpoint_every,
        checkpoint_minutes=checkpoint_minutes,
        root=root,
        fraction=fraction,
        max_bad=max_bad,
        labels=labels,
        test=test,
        workers=workers,
        weights=weights,
        loggers=loggers,
        transform=transform,
    )
    chosen = _chosen(data, choices)
    if out is not None:
        out = Path(out).expanduser().absolute()
        RunFolder.check_free(out, overwrite=overwrite, inputs=_inputs(chosen))
        RunFolder(out).check_unlocked()
    default = Path("runs").absolute() / _slug(data)
    chosen, dataset = _settled(chosen, choices, console)
    fabric = engine.launch(chosen.train)
    console.quiet = console.quiet or not fabric.is_global_zero
    within = None if budget is None else Budget.of(budget, began)
    with _reserved(out, default, fabric, overwrite=overwrite) as folder:
        with console.status("making a few steps, to see what it will take"):
            made = make_plan(chosen, dataset, fabric=fabric, transform=transform, budget=within)
        say(console, *made.lines())
        if fabric.is_global_zero:
            _create(folder, made.config, dataset, budget=within)
        return _train(made.config, dataset, folder, console, watches, fabric, transform=transform)


def _inputs(config: Config) -> list[Path]:
    """Files and folders that a run reads."""
    data, network = config.data, config.network
    named = (data.source, data.root, data.labels, data.test, network.weights)
    return [path for name in named if name is not None and (path := Path(name)).exists()]


@contextmanager
def _reserved(out: Path | None, default: Path, fabric: Fabric, *, overwrite: bool) -> Iterator[RunFolder]:
    """The run folder, locked by the first process; without `out`, the first free of default, default-2, …"""
    with contextlib.ExitStack() as stack:
        folder = RunFolder(out or default)
        if fabric.is_global_zero:
            missing = [path for path in (folder.path, *folder.path.parents) if not path.exists()]
            if out is None:
                folder = RunFolder(make_free_folder(default))
                missing = [folder.path, *missing]
            for path in reversed(missing):
                stack.callback(remove_if_empty, path)  # where it comes to nothing
            stack.enter_context(folder.reserved(overwrite=overwrite))
        agreed = engine.everyones(folder.path)[0]
        yield folder if fabric.is_global_zero else RunFolder(agreed)


def train_encoder(data: str | Path | Dataset, choices: Choices) -> tuple[Encoder, Config]:
    """What `pretrain` would learn, and its settled configuration, for those who keep them elsewhere: quietly,
    in a folder that is gone afterwards, without evaluation and report."""
    if isinstance(data, Dataset):
        config = engine.settle(_chosen(data.name, choices), data, views=choices.get("views"))
    else:
        config, data = _settled(_chosen(data, choices), choices, console_of(quiet=True))
    with tempfile.TemporaryDirectory(prefix="frossl-") as place, own_random_numbers():
        folder = RunFolder.create(place)
        folder.write_text(folder.config_file.name, config.to_toml())
        state = engine.build(config, data, folder)
        engine.fit(state)
        if Run(folder.path).interrupted:
            raise KeyboardInterrupt
        save_encoder(_encoder(state, data), config, folder, step=state.step)
        return load_encoder(folder.path), config


def plan(data: str | Path, **choices: Unpack[Choices]) -> Plan:
    """What `pretrain` with the same arguments would do, and what it would cost; nothing is written.

    A few steps are made and thrown away, to tell the time.
    """
    began, budget = time.monotonic(), choices.get("budget")
    if strange := sorted(set(choices) - set(Choices.__annotations__)):
        raise unknown("argument of plan", strange[0], Choices.__annotations__)
    config, dataset = _settled(_chosen(data, choices), choices, console_of(quiet=True))
    within = None if budget is None else Budget.of(budget, began)
    alone = config.train.devices == config.train.num_nodes == 1  # others are not started for a plan
    return make_plan(
        config, dataset, transform=choices.get("transform"), budget=within if alone else None, measure=alone
    )


def _chosen(data: str | Path, choices: Choices) -> Config:
    """The configuration that the arguments describe; refused where it can be without opening the data."""
    method = choices.get("method")
    config = choices.get("config") or recipe("default", method=method)
    config = config.with_settings(choices.get("settings") or {})
    if method is not None and method != config.objective.method:
        config = replace(config, objective=Objective(method))  # options are another method's
    if choices.get("epochs") is not None:
        if choices.get("budget") is not None:
            raise InputError("epochs and a budget both say how long; give one of them")
        config = replace(config, train=replace(config.train, steps=None))
    if (budget := choices.get("budget")) is not None:
        Budget.of(budget, 0.0)
    if choices.get("view_set") is not None:
        config = replace(config, view_set=choices["view_set"], views=())
    where = ("root", "fraction", "max_bad", "labels", "test", "workers")
    how = (
        "epochs", "batch_size", "micro_batch_size", "seed", "precision", "devices", "num_nodes",
        "checkpoint_every", "checkpoint_minutes",
    )  # fmt: skip
    named: dict[str, Any] = dict(choices)
    config = replace(
        config,
        data=data_of(config.data, data, **{name: named.get(name) for name in where}),
        network=_network(config.network, named.get("backbone"), named.get("width"), named.get("weights")),
        optim=given(config.optim, base_lr=choices.get("lr")),
        train=given(
            config.train,
            **{name: named.get(name) for name in how},
            loggers=tuple(choices.get("loggers", ())) or None,
        ),
    )
    engine.check(config)
    return config


def _settled(config: Config, choices: Choices, console: Console) -> tuple[Config, Dataset]:
    """With the data opened, and every None a value; refused if it cannot be built."""
    largest = LARGEST_STORED[config.train.device or engine.best_device()]
    dataset = opened(config, console, largest=largest)
    transform = choices.get("transform")
    config = engine.settle(config, dataset, views=choices.get("views"), transform=transform)
    return config, dataset


def _create(folder: RunFolder, config: Config, dataset: Dataset, *, budget: Budget | None) -> None:
    """Write all that a resume needs into a reserved folder."""
    source = dataset.train.source
    origin = provenance(
        seed=config.train.seed,
        index_digest=source.digest,
        images=len(source),
        weights_digest=digest(config.network.weights),
    )
    folder.begin({**origin, "budget": None if budget is None else budget.seconds})
    if source.names is not None:
        source.names.write(folder.index)
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
    console, folder = console_of(quiet), RunFolder.open(run)
    old = Config.read(folder.config_file)
    config = replace(old, train=given(old.train, epochs=epochs, devices=devices, num_nodes=num_nodes))
    new_end = epochs is not None and (old.train.steps is not None or epochs != old.train.epochs)
    if new_end:
        config = replace(config, train=replace(config.train, steps=None))
    if folder.closed and not new_end:
        say(console, f"{run} is finished; there is nothing to resume (--epochs gives it a new end)")
        return Run(folder.path)
    requeued = bool(int(os.environ.get("SLURM_RESTART_COUNT") or 0))
    if not requeued:
        folder.check_unlocked()
    config, dataset = _reopened(config, folder, console)
    done, images, train = folder.read_status()["step"], len(dataset.train.source), config.train
    if new_end and train.epochs * (images // min(images, train.batch_size)) <= done:
        raise InputError(f"{run} has done {done} steps already; {train.epochs} epochs end before that")
    fabric = engine.launch(train)
    wait = (
        STALE + HEARTBEAT if requeued else 0.0
    )  # the node that had it may be lost, and its lock not yet stale
    with folder.locked(wait=wait) if fabric.is_global_zero else contextlib.nullcontext():
        return _train(
            config, dataset, folder, console, watches, fabric, transform=transform, before=old.train
        )


def replay(run: str | Path, *, transform: Transform | None = None) -> engine.Replay:
    """Make the step again at which a run became not finite, and look where. Writes nothing.

    transform: the run's own, if it had one.
    """
    folder = RunFolder.open(run)
    if not folder.bad_batch.is_file():
        raise InputError(f"{run} holds no bad_batch.json: none of its steps was bad; `frossl resume` goes on")
    bad = folder.read_json(folder.bad_batch.name)
    if not isinstance(bad, dict) or not is_count(bad.get("step")):
        raise InputError(f"{folder.bad_batch} does not say which step was bad; `frossl resume` goes on")
    config, dataset = _reopened(Config.read(folder.config_file), folder, console_of(quiet=True))
    config = replace(config, train=replace(config.train, devices=1, num_nodes=1))
    state = engine.build(config, dataset, folder, transform=transform)
    engine.restore(state)
    if not state.step <= bad["step"] < state.loader.last:
        raise InputError(f"{run} is at step {state.step}, and its bad step {bad['step']} is not ahead of it")
    return engine.replay(state, bad["step"])


def _reopened(config: Config, folder: RunFolder, console: Console) -> tuple[Config, Dataset]:
    """The settled configuration and the data of a run that goes on; they must be what it began with."""
    engine.check(config)
    dataset = opened(config, console)
    check_same(config, folder, dataset)
    if not folder.checkpoint_files():
        if folder.encoder.is_file():
            raise InputError(
                f"the checkpoints of {folder.path} are gone, so there is nothing to go on from; put them "
                "back, or start a new run (with --weights ENCODER, from the encoder that this one has)"
            )
        check_weights(config, folder.provenance())
    folder.checkpoints.mkdir(exist_ok=True)
    return engine.settle(config, dataset), dataset


def _run_of_this_job(out: str | Path | None, data: str | Path) -> Path | None:
    """The run that this job of SLURM began before it was put back in line, if there is one."""
    job = os.environ.get("SLURM_JOB_ID")
    if not int(os.environ.get("SLURM_RESTART_COUNT") or 0):
        return None
    name = Path(out) if out is not None else Path("runs") / _slug(data)
    for path in [name] if out is not None else sorted(name.parent.glob(f"{name.name}*")):
        folder = RunFolder(path)
        if not folder.config_file.is_file() or not is_run(path):
            continue
        known = folder.provenance()
        if (known.get("job"), known["command"]) == (job, command_line()):
            return path
    return None


def _train(
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    console: Console,
    watches: Sequence[Watch],
    fabric: Fabric,
    *,
    transform: Transform | None = None,
    before: Train | None = None,
) -> Run:
    """before: how long a run that is resumed was to be, until now."""
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
            draw_views(config, dataset, folder.views, transform=transform)
    _announce(state, console, wrote, before)
    try:
        with screen(console, folder, start=state.step) as shown:
            engine.fit(state, shown, watches)
    except TrainingError:
        if state.first:
            _report_failure(folder)
        raise
    if state.first:
        _end(state, dataset, folder, console)
    with contextlib.suppress(RuntimeError):
        engine.barrier()  # what starts processes may end all of them with the first that ends
    return Run(folder.path)


def _end(state: engine.State, dataset: Dataset, folder: RunFolder, console: Console) -> None:
    """The encoder, and the report; of a run that came to its end, an evaluation and a sample for it too."""
    save_encoder(_encoder(state, dataset), state.config, folder, step=state.step)
    write_card(folder)
    if bad := dataset.train.source.bad_files():
        say(console, f"{len(bad)} files could not be read, others took their place: {folder.bad_files}")
    if folder.read_status()["state"] != "finished":
        write_report([folder.path], folder.report)
        return
    with console.status("evaluating, and writing the report"), own_random_numbers():
        training = max((record["seconds"] for record in folder.metrics), default=0.0)
        folder.forget_evaluation(state.step, BRIEF)  # of a closing that was cut short
        close(folder, state.config, dataset, load_encoder(folder.path), training=training)
        write_card(folder)
        folder.mark_closed()


def _encoder(state: engine.State, dataset: Dataset) -> Encoder:
    mean, std = dataset.statistics
    return Encoder(state.method.encoder, size=dataset.size, mean=mean, std=std)


def _report_failure(folder: RunFolder) -> None:
    """What a run that failed leaves to be looked at, if there is room for it."""
    with contextlib.suppress(OSError, FrosslError):
        write_report([folder.path], folder.report)


def _shared(config: Config) -> str:
    """What must be the same for every process: all but where things lie."""
    data, network = replace(config.data, source=""), replace(config.network, weights=None)
    return replace(config, data=data, network=network).to_toml()


def _announce(state: engine.State, console: Console, wrote: int, before: Train | None) -> None:
    """What the plan does not say, and what changes in a resumed run.

    wrote: how many processes wrote its checkpoint. before: how long it was to be.
    """
    config, loader = state.config, state.loader
    if loader.batch_size < config.train.batch_size:
        say(console, f"fewer images than a batch of {config.train.batch_size}: every batch holds all of them")
    if before is not None and state.step == loader.total:
        say(console, f"all {loader.total} steps are done; what comes after them is done again")
    elif before is not None:
        say(console, f"going on from step {state.step} of {loader.total}")
        if loader.processes > 1:
            share = -(-loader.batch_size // loader.processes)
            say(console, f"{loader.processes} processes, each with {share} images")
        if (before.epochs, before.steps) != (config.train.epochs, config.train.steps):
            now = loader.clock(state.step)
            then = replace(now, total=before.steps or before.epochs * loader.steps_per_epoch)
            say(
                console,
                f"{then.total} steps become {now.total}: rates and other schedules are those of the new "
                f"length from here on (rate {state.lr(now):.3g}, where it would have been "
                f"{state.lr(then):.3g})",
            )
    if wrote != loader.processes:
        say(
            console,
            f"processes so far: {wrote}, from here on: {loader.processes}; batches and views stay the same, "
            "sums are rounded in another order, and BatchNorm on a CPU sees another share of the batch",
        )


def _network(
    network: Network, backbone: str | None, width: float | None, weights: str | Path | None
) -> Network:
    """Another backbone than the configuration's comes as it is: its cuts were made for the other one."""
    if backbone is not None and backbone != network.backbone:
        network = replace(network, backbone=backbone, width=1.0, stages=None, stem=None)
    file = weights or network.weights
    return given(network, width=width, weights=file and str(Path(file).expanduser().absolute()))


def _slug(data: str | Path) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(data).absolute().name).strip("-.") or "run"


def make_free_folder(path: Path) -> Path:
    """Make `path`, or path-2, path-3, …: the first that does not exist, even if others look for one now."""
    number, free = 1, path
    while True:
        try:
            free.mkdir(parents=True)
        except FileExistsError:
            if not free.parent.is_dir():
                raise InputError(f"{free.parent} is a file; choose another --out") from None
            number += 1
            free = path.with_name(f"{path.name}-{number}")
        except OSError as error:
            raise InputError(f"cannot create {free}: {error.strerror}; choose another --out") from None
        else:
            return free
