"""Train an encoder, plan or resume a run, replay a bad step."""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from rich.console import Console

import frossl.engine as engine
from frossl._api.common import (
    check_same_images,
    check_weights,
    make_console,
    open_data,
    print_lines,
    replace_given,
)
from frossl._api.data_tools import draw_views
from frossl._api.evaluate import BRIEF_SUFFIX
from frossl._api.finish import close, finish_seconds
from frossl._api.folders import begin_run, default_name, reserve_folder, resumed_pacer, run_of_this_job
from frossl._api.options import RunOptions, budget_of, configure, input_paths, settle
from frossl.augment import Transform
from frossl.config import Config, Train, steps_per_epoch
from frossl.data import Dataset
from frossl.engine.budget import Pacer
from frossl.engine.plan import Plan, make_plan
from frossl.errors import FrosslError, InputError, TrainingError
from frossl.exporting import load_encoder, save_encoder, write_card
from frossl.live import screen
from frossl.machine import cores, has_bfloat16, threads_spin
from frossl.methods import Method
from frossl.networks import Encoder
from frossl.options import check_names, takes_options
from frossl.reporting import write_report
from frossl.runs import RunFolder
from frossl.runs.lock import HEARTBEAT, STALE
from frossl.runs.records import is_count
from frossl.text import method_title
from frossl.types import Callback, isolated_rng

SPINNING = (
    "torch was imported before frossl, so its threads spin while they wait: beside another busy process, "
    "steps take several times as long; import frossl first, or set OMP_WAIT_POLICY=passive"
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from frossl._api.run import Run


@takes_options(RunOptions)
def pretrain(
    data: str | Path,
    *,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    overwrite: bool = False,
    quiet: bool = False,
    watches: Sequence[Callback] = (),
    **options: Unpack[RunOptions],
) -> Run:
    """Train an encoder on unlabelled images.

    Ctrl-C stops the run with a checkpoint, and `resume` continues it. With `devices` and `num_nodes`, every
    process runs the calling script up to here and continues with what follows: see docs/scale.md.

    Args:
        data: Folder of images, list of paths, archive, array, or name of a data set.
        out: Run folder to write; `runs/NAME` if None.
        config: Configuration to start from; the recipe `default` if None.
        settings: Settings by dotted name, such as `{"optim.weight_decay": 0.05}`. They override `config`, and
            the other arguments override both.
        views: Number of views of each image.
        budget: Time that everything may take, evaluation and report included, as "30m", "1h30m" or seconds.
            A few steps are timed and thrown away, and the number of steps follows from that. It changes if
            the machine becomes slower or faster while the run trains.
        **options: Other options (`RunOptions`), each of which sets one field of the configuration.
        callbacks: Functions to call with tensors of training steps (see `Callback`).
        transform: Function that makes views (see `Transform`), in place of a view set; if it makes one view
            at a time, `views` is their number.
        overwrite: Replace a run that is in `out`.
        quiet: Print nothing.
        watches: Deprecated since 0.2.0: `callbacks`.

    Returns:
        The run, with its encoder, records and verdict.
    """
    began = time.monotonic()
    callbacks = _with_deprecated(callbacks, watches)
    if (same := run_of_this_job(out, data)) is not None:
        return resume(same, callbacks=callbacks, transform=options.get("transform"), quiet=quiet)
    check_names(options, RunOptions)
    console, transform = make_console(quiet), options.get("transform")
    settled = configure(data, options)
    undecided = engine.undecided(settled.train)
    target = None if out is None else _check_target(out, settled, overwrite=overwrite)
    default = Path("runs").absolute() / default_name(data)
    settled, dataset = settle(settled, options, console)
    fabric = engine.launch(settled.train)
    console.quiet = console.quiet or not fabric.is_global_zero
    within = budget_of(options, began)
    with (
        reserve_folder(target, default, fabric, overwrite=overwrite) as folder,
        engine.cpu_threads(settled.train) as train,
    ):
        settled = replace(settled, train=train)
        networks = engine.build_method(settled)
        with console.status("timing a few steps"):
            made = make_plan(
                settled,
                dataset,
                method=networks,
                fabric=fabric,
                transform=transform,
                budget=within,
                undecided=undecided,
                finish_seconds=finish_seconds,
            )
        if made.config.train.precision != settled.train.precision:
            fabric = engine.launch(made.config.train)  # of one process
        print_lines(console, *made.lines())
        if fabric.is_global_zero:
            begin_run(folder, made.config, dataset, pacer=made.pacer(within))
        return _train(
            made.config,
            dataset,
            folder,
            console,
            callbacks,
            fabric,
            transform=transform,
            method=networks,
            pacer=made.pacer(within),
        )


def _check_target(out: str | Path, config: Config, *, overwrite: bool) -> Path:
    """Return the run folder to write as an absolute path; raise `InputError` if it cannot be used."""
    path = Path(out).expanduser().absolute()
    RunFolder.check_free(path, overwrite=overwrite, inputs=input_paths(config))
    RunFolder(path).check_unlocked()
    return path


def _with_deprecated(callbacks: Sequence[Callback], watches: Sequence[Callback]) -> Sequence[Callback]:
    if watches:
        warnings.warn("watches= is now callbacks=", DeprecationWarning, stacklevel=3)
    return [*callbacks, *watches]


def train_encoder(data: str | Path | Dataset, options: RunOptions) -> tuple[Encoder, Config]:
    """Train quietly in a temporary folder, without evaluation and report.

    Returns:
        The encoder and the settled configuration.
    """
    if isinstance(data, Dataset):
        config = engine.settle(configure(data.name, options), data, views=options.get("views"))
    else:
        config, data = settle(configure(data, options), options, make_console(quiet=True))
    with (
        tempfile.TemporaryDirectory(prefix="frossl-") as place,
        isolated_rng(),
        engine.cpu_threads(config.train) as train,
    ):
        config, folder = replace(config, train=train), RunFolder.create(place)
        folder.write_text(folder.config_file.name, config.to_toml())
        state = engine.build(config, data)
        engine.fit(state, folder)
        if _run(folder).interrupted:
            raise KeyboardInterrupt
        save_encoder(state.encoder, config, folder, step=state.step)
        return load_encoder(folder.path), config


@takes_options(RunOptions)
def plan(data: str | Path, **options: Unpack[RunOptions]) -> Plan:
    """Return what `pretrain` with the same arguments would do and take; nothing is written.

    A few steps are timed and thrown away.

    Args:
        data: Folder of images, list of paths, archive, array, or name of a data set.
        **options: Options of the run (`RunOptions`), as for `pretrain`.
    """
    began = time.monotonic()
    check_names(options, RunOptions)
    config = configure(data, options)
    undecided = engine.undecided(config.train)
    config, dataset = settle(config, options, make_console(quiet=True))
    within = budget_of(options, began)
    alone = config.train.devices == config.train.num_nodes == 1  # others are not started for a plan
    with engine.cpu_threads(config.train) as train:
        return make_plan(
            replace(config, train=train),
            dataset,
            transform=options.get("transform"),
            budget=within if alone else None,
            measure=alone,
            undecided=undecided,
            finish_seconds=finish_seconds,
        )


def resume(
    run: str | Path,
    *,
    epochs: int | None = None,
    devices: int | None = None,
    num_nodes: int | None = None,
    callbacks: Sequence[Callback] = (),
    transform: Transform | None = None,
    quiet: bool = False,
    watches: Sequence[Callback] = (),
) -> Run:
    """Continue a stopped run from its newest checkpoint, as if it had never stopped.

    A run with a time budget takes what was left of it at that checkpoint.

    Args:
        run: Run folder. Everything is read from it, except `callbacks` and `transform`, which are functions.
        epochs: New length, for a finished run too; learning rate and other schedules then follow the new
            length.
        devices: Other number of processes on this machine.
        num_nodes: Other number of machines.
        callbacks: Functions to call with tensors of training steps.
        transform: Function that makes views, if the run was started with one.
        quiet: Print nothing.
        watches: Deprecated since 0.2.0: `callbacks`.
    """
    began = time.monotonic()
    callbacks = _with_deprecated(callbacks, watches)
    console, folder = make_console(quiet), RunFolder.open(run)
    old = Config.read(folder.config_file)
    config = replace(old, train=replace_given(old.train, epochs=epochs, devices=devices, num_nodes=num_nodes))
    new_end = epochs is not None and (old.train.steps is not None or epochs != old.train.epochs)
    if new_end:
        config = replace(config, train=replace(config.train, steps=None, settlements=()))
    pacer = resumed_pacer(folder, config, began=began)
    if folder.closed and not new_end:
        print_lines(console, f"{run} is finished; there is nothing to resume (--epochs gives it a new end)")
        return _run(folder)
    requeued = bool(int(os.environ.get("SLURM_RESTART_COUNT") or 0))
    if not requeued:
        folder.check_unlocked()
    config, dataset = _reopen(config, folder, console)
    done, train = folder.read_status().step, config.train
    per_epoch = steps_per_epoch(len(dataset.train.source), train.batch_size)
    if new_end and train.epochs * per_epoch <= done:
        raise InputError(f"{run} has done {done} steps already; {train.epochs} epochs end before that")
    fabric = engine.launch(train)
    wait = (
        STALE + HEARTBEAT if requeued else 0.0
    )  # the node that had it may be lost, and its lock not yet stale
    with (
        folder.locked(wait=wait) if fabric.is_global_zero else contextlib.nullcontext(),
        engine.cpu_threads(_resumed_threads(train, old.train)) as train,
    ):
        config = replace(config, train=train)
        return _train(
            config,
            dataset,
            folder,
            console,
            callbacks,
            fabric,
            transform=transform,
            previous=old.train,
            pacer=pacer,
        )


def _resumed_threads(train: Train, old: Train) -> Train:
    """Return the settings of a resumed run with the number of threads that it had, which gives the same bits.

    It is chosen anew if another number of processes shares the cores.
    """
    same = (train.devices, train.num_nodes) == (old.devices, old.num_nodes)
    return train if same else replace(train, threads=None)


def replay(run: str | Path, *, transform: Transform | None = None) -> engine.Replay:
    """Repeat the step at which a run became not finite, and find where; writes nothing.

    Args:
        run: Run folder.
        transform: The function that makes its views, if the run has one.
    """
    folder = RunFolder.open(run)
    if not folder.bad_batch.is_file():
        raise InputError(
            f"{run} holds no bad_batch.json: none of its steps was bad; `frossl resume` continues it"
        )
    bad = folder.read_json(folder.bad_batch.name)
    if not isinstance(bad, dict) or not is_count(bad.get("step")):
        raise InputError(
            f"{folder.bad_batch} does not say which step was bad; `frossl resume` continues the run"
        )
    config, dataset = _reopen(Config.read(folder.config_file), folder, make_console(quiet=True))
    config = replace(config, train=replace(config.train, devices=1, num_nodes=1))
    method = engine.build_method(config, pretrained=not folder.checkpoint_files())
    state = engine.build(config, dataset, transform=transform, method=method)
    engine.restore(state, folder)
    if not state.step <= bad["step"] < state.loader.last:
        raise InputError(f"{run} is at step {state.step}, and its bad step {bad['step']} is not ahead of it")
    return engine.replay(state, bad["step"])


def _reopen(config: Config, folder: RunFolder, console: Console) -> tuple[Config, Dataset]:
    """Return the settled configuration and the data of a run to continue.

    Raises:
        InputError: If data or weights are not those that the run was started with, or if checkpoints are
            missing.
    """
    engine.check(config)
    dataset = open_data(config, console)
    check_same_images(config, folder, dataset)
    if not folder.checkpoint_files():
        if folder.encoder.is_file():
            raise InputError(
                f"the checkpoints of {folder.path} are missing, so it cannot be continued; put them back, or "
                "start a new run (with --weights ENCODER, from the encoder of this one)"
            )
        check_weights(config, folder.provenance())
    folder.checkpoints.mkdir(exist_ok=True)
    return engine.settle(config, dataset), dataset


def _train(
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    console: Console,
    callbacks: Sequence[Callback],
    fabric: Fabric,
    *,
    transform: Transform | None = None,
    method: Method | None = None,
    previous: Train | None = None,
    pacer: Pacer | None = None,
) -> Run:
    """Train from the newest checkpoint or from the start, then evaluate and report.

    Args:
        config: Settled configuration.
        dataset: Data set of the run.
        folder: Run folder, locked by the main process.
        console: Console for messages and progress.
        callbacks: Functions to call with tensors of training steps.
        fabric: Process group.
        transform: Function that makes views.
        method: Initial networks; built here if None.
        previous: Previous training settings of a resumed run, whose length may differ.
        pacer: Pace of a run with a time budget.
    """
    console.quiet = console.quiet or not fabric.is_global_zero
    with engine.talking(lambda: "before the first step"):
        engine.barrier()  # until the main process has created the folder
        if method is None:
            method = engine.build_method(config, pretrained=not folder.checkpoint_files())
        state = engine.build(config, dataset, fabric, transform, method=method)
        state.pacer = pacer
        checkpoint_processes = engine.restore(state, folder)
        config = state.config
        shared = (dataset.train.source.digest, state.step, state.loader.last, _shared_settings(config))
        if len(set(engine.all_gather_object(shared))) > 1:
            raise InputError(
                "processes disagree on images, settings or checkpoint; start the same command on every node, "
                "with the same data and an --out that they share"
            )
    if state.is_main and config != Config.read(folder.config_file):
        folder.write_text(folder.config_file.name, config.to_toml())
    if state.is_main and not folder.views.is_file():
        with contextlib.suppress(TrainingError):  # training itself reports unreadable files
            draw_views(config, dataset, folder.views, transform=transform)
    _announce(state, console, checkpoint_processes, previous)
    try:
        with screen(console, folder, start=state.step) as shown:
            engine.fit(state, folder, shown, callbacks)
    except TrainingError:
        if state.is_main:
            _report_failure(folder)
        raise
    if state.is_main:
        _finish_run(state, dataset, folder, console)
    with contextlib.suppress(RuntimeError):
        engine.barrier()  # a launcher may end all processes as soon as one exits
    return _run(folder)


def _finish_run(state: engine.State, dataset: Dataset, folder: RunFolder, console: Console) -> None:
    """Write the encoder and the report; for a finished run, also a brief evaluation and a sample."""
    save_encoder(state.encoder, state.config, folder, step=state.step)
    write_card(folder)
    if bad := dataset.train.source.bad_files():
        print_lines(
            console,
            f"{len(bad)} files could not be read and were replaced by other images: {folder.bad_files}",
        )
    if folder.read_status().state != "finished":
        write_report([folder.path], folder.report)
        return
    with console.status("evaluating, and writing the report"), isolated_rng():
        folder.remove_evaluation(state.step, BRIEF_SUFFIX)  # left by an interrupted call
        encoder, training = load_encoder(folder.path), folder.training_seconds()
        left = None if state.pacer is None else state.pacer.budget.left
        close(folder, state.config, dataset, encoder, training=training, seconds=left)
        write_card(folder)
        folder.mark_closed()


def _report_failure(folder: RunFolder) -> None:
    """Write the report of a failed run, if the disk allows it."""
    with contextlib.suppress(OSError, FrosslError):
        write_report([folder.path], folder.report)


def _shared_settings(config: Config) -> str:
    """Return the settings that must be the same in every process: all except paths."""
    data, network = replace(config.data, source=""), replace(config.network, weights=None)
    train = replace(config.train, threads=None)  # cores of the nodes may differ
    objective = replace(config.objective, method=method_title(config.objective.method))
    return replace(config, data=data, network=network, objective=objective, train=train).to_toml()


def _announce(
    state: engine.State, console: Console, checkpoint_processes: int, previous: Train | None
) -> None:
    """Print what the plan does not say, and what changes in a resumed run.

    Args:
        state: State before the first step.
        console: Console to print to.
        checkpoint_processes: Number of processes that saved the checkpoint.
        previous: Previous training settings of a resumed run; None for a new one.
    """
    config, loader = state.config, state.loader
    if loader.batch_size < config.train.batch_size:
        print_lines(
            console, f"fewer images than a batch of {config.train.batch_size}: every batch holds all of them"
        )
    if previous is not None and state.step == loader.total:
        print_lines(console, f"all {loader.total} steps are done; only evaluation and report are repeated")
    elif previous is not None:
        print_lines(console, f"continuing from step {state.step} of {loader.total}")
        if loader.processes > 1:
            share = -(-loader.batch_size // loader.processes)
            print_lines(console, f"{loader.processes} processes, each with {share} images")
        if (previous.epochs, previous.steps) != (config.train.epochs, config.train.steps):
            before = copy.copy(loader)
            before.planned = previous.steps or previous.epochs * loader.steps_per_epoch
            before.settlements = previous.settlements
            now, then = loader.clock(state.step), before.clock(state.step)
            print_lines(
                console,
                f"{then.total} steps become {now.total}: learning rate and other schedules follow the new "
                f"length from here on (learning rate {state.lr(now):.3g} instead of {state.lr(then):.3g})",
            )
    if threads_spin() and config.train.device == "cpu" and config.train.threads != 1:
        print_lines(console, SPINNING)
    if config.train.device == "cpu" and config.train.precision == "bf16-mixed" and not has_bfloat16():
        print_lines(
            console,
            "this CPU has no instructions for bfloat16, so steps are slow; start runs with "
            "--precision 32-true",
        )
    if config.train.device == "cpu" and (config.train.threads or 1) > cores().workers:
        print_lines(
            console,
            f"{config.train.threads} threads share {cores().workers} cores, which is slow; a new run would "
            "take fewer (--threads)",
        )
    if checkpoint_processes != loader.processes:
        print_lines(
            console,
            f"processes so far: {checkpoint_processes}, from here on: {loader.processes}; batches and views "
            "stay the same, sums are rounded in another order, and BatchNorm on a CPU sees another part of "
            "the batch",
        )


def _run(folder: RunFolder) -> Run:
    from frossl._api.run import Run  # here because `resume` and `replay` are methods of a run

    return Run(folder.path)
