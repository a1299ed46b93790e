"""The training loop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from frossl.engine.build import State
from frossl.engine.checkpoint import save
from frossl.engine.step import train_step
from frossl.errors import TrainingError


class Screen(Protocol):
    """Whoever shows the run while it lives."""

    def step(self, step: int, total: int, record: dict[str, Any] | None) -> None:
        """A step is done; on log steps, what was recorded."""


class Stop:
    """Set by a signal; read between steps."""

    reason = ""

    def __bool__(self) -> bool:
        return bool(self.reason)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM end the run after the current step; a second one ends it at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals belong to the main thread: the caller's business
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop:
            raise KeyboardInterrupt
        stop.reason = signal.Signals(number).name

    earlier = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def fit(state: State, screen: Screen | None = None) -> bool:
    """Train from `state.step` to the end; False if a signal stopped the run before."""
    folder, loader, every = state.folder, state.loader, state.config.train
    pace = Pace(loader.batch_size)
    folder.write_status("running", step=state.step, total=loader.total)
    try:
        with stop_on_signals() as stop:
            for batch, clock in loader.batches(state.step):
                state.set_lr(clock)
                terms = train_step(state.to_device(batch), state, clock)
                state.step = clock.step + 1
                record = None
                if clock.due(every.log_every):
                    record = {"step": state.step, "epoch": clock.epoch, "lr": state.lr(clock)}
                    record |= terms.to_floats() | pace.measure(state.step)
                    folder.metrics.append(record)
                if screen is not None:
                    screen.step(state.step, loader.last, record)
                if clock.due(every.checkpoint_every) or stop or state.step == loader.last:
                    save(state)
                if stop:
                    folder.write_status("stopped", step=state.step, total=loader.total, reason=stop.reason)
                    return False
    except TrainingError as error:
        folder.write_status("failed", step=state.step, total=loader.total, reason=str(error))
        raise
    finally:
        bad = loader.source.bad_files()
        if bad:
            folder.write_text("bad_files.txt", "".join(f"{path!r}\t{why!r}\n" for path, why in bad.items()))
    ended = "finished" if loader.last == loader.total else "stopped"
    reason = "" if ended == "finished" else "FROSSL_MAX_STEPS"
    folder.write_status(ended, step=state.step, total=loader.total, reason=reason)
    return True


class Pace:
    """Images per second since the last time it was asked."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size, self.start = batch_size, time.perf_counter()
        self.since, self.step = self.start, None

    step: int | None

    def measure(self, step: int) -> dict[str, float]:
        now = time.perf_counter()
        done = step - self.step if self.step is not None else None
        seconds, self.since, self.step = now - self.since, now, step
        out = {"seconds": round(now - self.start, 3)}
        if done:
            out["images_per_second"] = round(done * self.batch_size / max(seconds, 1e-9), 1)
        return out
