"""The training loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor

from frossl.engine import heartbeat
from frossl.engine.build import State
from frossl.engine.gather import all_gather_object, barrier, gather
from frossl.engine.launch import talking
from frossl.engine.recorder import Display, Recorder, StepTensors
from frossl.engine.signals import COLLAPSE, Consensus, requeue, stop_on_signals
from frossl.engine.step import train_step
from frossl.errors import BadStepError, CollapseError
from frossl.runs import RunFolder
from frossl.types import Batch, Callback, isolated_rng


def fit(
    state: State, folder: RunFolder, screen: Display | None = None, callbacks: Sequence[Callback] = ()
) -> None:
    """Train from `state.step` to the end, or until a signal stops the run.

    Args:
        state: The run, from `build`.
        folder: Run folder to write to.
        screen: Display of the progress, if any.
        callbacks: Functions to call with tensors of training steps.
    """
    recorder = Recorder(state, folder, screen) if state.is_main else None
    try:
        with (
            heartbeat.telling(lambda error: None if recorder is None else recorder.lost(error)),
            talking(lambda: f"after step {state.step}"),
        ):
            reason = _run_steps(state, callbacks, recorder)
            bad_files = all_gather_object(state.loader.source.bad_files())
    except BaseException as error:
        if isinstance(error, BadStepError):
            state.step = error.step
        if recorder is not None:
            recorder.fail(error)
        if isinstance(error, (BadStepError, CollapseError)):
            with contextlib.suppress(RuntimeError):
                barrier()  # a process that ends takes the others with it
        raise
    if recorder is not None:
        finished = state.step == state.loader.total
        reason = "" if finished else reason or "FROSSL_MAX_STEPS"
        recorder.close("finished" if finished else "stopped", reason, bad_files)
        if reason == "SIGUSR1":
            requeue()


def _run_steps(state: State, callbacks: Sequence[Callback], recorder: Recorder | None) -> str:
    """Run the training steps; return the name of the signal that stopped them, or an empty string."""
    loader, guard, train, stopping = state.loader, state.guard, state.config.train, ""
    with _private_random_state(state), stop_on_signals() as stop:
        consensus = Consensus(stop, state.fabric.device)
        if state.pacer is not None:
            state.pacer.begin(state.step)
        for batch, clock in state.stopwatch.waiting(loader.batches(state.step)):
            state.set_lr(clock)
            terms, tensors = train_step(state.to_device(batch), state, clock)
            state.step = clock.step + 1
            asks = state.is_main and state.pacer is not None and state.pacer.asks()
            stopping, looking = consensus.reached(look=asks)
            if looking and not stopping and state.step < loader.last:
                _keep_budget(state, recorder)
            ending = bool(stopping) or state.step == loader.last
            if ending or clock.due(train.log_every):
                guard.check_last()
            due = [callback for callback in callbacks if clock.due(callback.every)]
            names = state.monitor.wants(clock) | ({"features", "z"} if due else set())
            shared = _gathered(batch, tensors, state, names) if names else None
            if recorder is not None:
                with state.stopwatch("diagnostics"):
                    recorder.observe(shared, terms, clock, due)
                if recorder.collapsed:
                    stop.number = COLLAPSE
                recorder.step(terms, clock, ending=ending)
            if stopping:
                break
        consensus.settle()
        if any(all_gather_object(recorder is not None and recorder.collapsed)):
            raise CollapseError(str(recorder.verdict) if recorder is not None else "see the main process")
    return stopping if state.step < loader.last else ""


def _keep_budget(state: State, recorder: Recorder | None) -> None:
    """Change the number of steps if the run would miss its time budget; the main process decides."""
    assert state.pacer is not None
    settlement = all_gather_object(state.pacer.look(state.step, state.loader.total))[0]
    if settlement is None:
        return
    before = state.loader.total
    state.settle([*state.loader.settlements, settlement])
    if recorder is not None:
        recorder.settled(before)


def _gathered(batch: Batch, tensors: Mapping[str, Tensor], state: State, names: set[str]) -> StepTensors:
    """Gather the ids of the global batch, on every process, and pick the named tensors."""
    ids = gather(state.fabric.to_device(batch.ids)[None], images=state.loader.batch_size)[0]
    return ids, {name: tensors[name].detach() for name in sorted(names)}


@contextmanager
def _private_random_state(state: State) -> Iterator[None]:
    """Leave the caller's random state unchanged, as every step seeds torch."""
    devices = [state.fabric.device] if state.fabric.device.type == "cuda" else []
    with isolated_rng(devices):
        yield
