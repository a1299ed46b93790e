"""The training loop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import torch

from frossl.engine.build import State
from frossl.engine.checkpoint import save
from frossl.engine.loggers import Loggers
from frossl.engine.step import train_step
from frossl.errors import TrainingError
from frossl.types import Watch


class Screen(Protocol):
    """Whoever shows the run while it lives."""

    def step(self, step: int, total: int, record: dict[str, Any] | None) -> None:
        """A step is done; on log steps, what was recorded."""


def fit(state: State, screen: Screen | None = None, watches: Sequence[Watch] = ()) -> None:
    """Train from `state.step` to the end, or until a signal asks to stop. `status.json` says how it ended."""
    folder, loader = state.folder, state.loader
    state.watched = bool(watches)
    folder.write_status("running", step=state.step, total=loader.total)
    loggers = Loggers(folder, state.config, state.step)
    try:
        reason = _walk(state, screen, watches, loggers)
        ended = "finished" if state.step == loader.total else "stopped"
        reason = "" if ended == "finished" else reason or "FROSSL_MAX_STEPS"
        folder.write_status(ended, step=state.step, total=loader.total, reason=reason)
    except BaseException as error:
        ended = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = f"{type(error).__name__}: {error}"
        folder.write_status(ended, step=state.step, total=loader.total, reason=reason)
        raise
    finally:
        if bad := loader.source.bad_files():
            lines = [f"{path!r}\t{why!r}\n" for path, why in bad.items()]
            folder.write_text(folder.bad_files.name, "".join(lines))
        loggers.close(finished=state.step == loader.total)


def _walk(state: State, screen: Screen | None, watches: Sequence[Watch], loggers: Loggers) -> str:
    """Step after step; returns the name of the signal that ended it, if one did."""
    folder, loader, train, pace = state.folder, state.loader, state.config.train, Pace(state)
    with _private_random_state(state), stop_on_signals() as stop:
        for batch, clock in loader.batches(state.step):
            state.set_lr(clock)
            terms = train_step(state.to_device(batch), state, clock)
            state.step = clock.step + 1
            stopping, record = stop.reason, None
            if clock.due(train.log_every):
                record = {"step": state.step, "epoch": clock.epoch, "lr": state.lr(clock)}
                record |= terms.to_floats() | pace.measure(state.step)
                folder.metrics.append(record)
                loggers.log(record)
            for watch in watches:
                if clock.due(watch.every) and (seen := watch.look(batch.ids, state.last, clock)):
                    numbers = {**_numbers(seen), "step": state.step}
                    folder.diagnostics.append(numbers)
                    loggers.log(numbers)
            if screen is not None:
                screen.step(state.step, loader.last, record)
            if clock.due(train.checkpoint_every) or stopping or state.step == loader.last:
                save(state)
                folder.write_status("running", step=state.step, total=loader.total)
            if stopping:
                return stopping
    return ""


def _numbers(seen: Mapping[str, float]) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in seen.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(
            f"a watch returned {type(seen).__name__} ({error}); return numbers by name, or None"
        ) from None


class Stop:
    """Why to stop, set by a signal and read between steps."""

    reason = ""


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM end the run after the current step; a second one ends it at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals belong to the main thread: the caller's business
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.reason:
            raise KeyboardInterrupt
        stop.reason = signal.Signals(number).name

    earlier = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def _private_random_state(state: State) -> Iterator[None]:
    """Every step seeds torch; the caller's random numbers stay as they were."""
    devices = [state.fabric.device] if state.fabric.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


class Pace:
    """Seconds of training so far, earlier sittings included, and images per second since last asked."""

    def __init__(self, state: State) -> None:
        self.batch_size, self.step, self.time = state.loader.batch_size, state.step, time.perf_counter()
        self.seconds = max((record["seconds"] for record in state.folder.metrics), default=0.0)

    def measure(self, step: int) -> dict[str, float]:
        now = time.perf_counter()
        passed, steps = now - self.time, step - self.step
        self.time, self.step = now, step
        self.seconds += passed
        speed = steps * self.batch_size / max(passed, 1e-9)
        return {"seconds": round(self.seconds, 3), "images_per_second": round(speed, 1)}
