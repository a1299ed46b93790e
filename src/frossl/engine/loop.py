"""The training loop."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor

from frossl.diagnostics import LOWER_RATE, NOT_WATCHED, Verdict, judge
from frossl.engine import heartbeat
from frossl.engine.build import State
from frossl.engine.checkpoint import forget_after, newest, save
from frossl.engine.gather import barrier, everyones, gather, largest, processes
from frossl.engine.launch import talking
from frossl.engine.loggers import Loggers
from frossl.engine.step import train_step
from frossl.errors import BadStepError, CollapseError, LostError, TrainingError
from frossl.runs import bad_file_lines
from frossl.runs.record import LOOK
from frossl.types import Batch, Clock, LossTerms, Watch, own_random_numbers

report = logging.getLogger("frossl")

COLLAPSE, COLLAPSED = 1000, "collapse"
"""What stops a run that has collapsed, where other runs are stopped by a signal, and its name."""


class Screen(Protocol):
    """Whoever shows the run while it lives."""

    def step(self, step: int, total: int, record: dict[str, Any] | None) -> None:
        """A step is done; on log steps, what was recorded."""

    def look(self, record: dict[str, Any]) -> None:
        """What was found out about the embeddings, with the verdict, its `reason` and `advice`."""

    def note(self, text: str) -> None:
        """A line for those who look closely."""

    def tell(self, text: str) -> None:
        """A line that must not be overlooked."""


def fit(state: State, screen: Screen | None = None, watches: Sequence[Watch] = ()) -> None:
    """Train from `state.step` to the end, or until a signal asks to stop. `status.json` says how it ended."""
    book = Book(state, screen) if state.first else None
    try:
        with (
            heartbeat.telling(lambda error: None if book is None else book.lost(error)),
            talking(lambda: f"after step {state.step}"),
        ):
            reason = _walk(state, watches, book)
            bad_files = everyones(state.loader.source.bad_files())
    except BaseException as error:
        if isinstance(error, BadStepError):
            state.step = error.step
        if book is not None:
            book.fail(error)
        if isinstance(error, (BadStepError, CollapseError)):
            with contextlib.suppress(RuntimeError):
                barrier()  # a process that ends takes the others with it
        raise
    if book is not None:
        finished = state.step == state.loader.total
        reason = "" if finished else reason or "FROSSL_MAX_STEPS"
        book.close("finished" if finished else "stopped", reason, bad_files)
        if reason == "SIGUSR1":
            requeue()


def _walk(state: State, watches: Sequence[Watch], book: Book | None) -> str:
    """Step after step; returns the name of the signal that ended it, if one did."""
    loader, guard, train, stopping = state.loader, state.guard, state.config.train, ""
    with _private_random_state(state), stop_on_signals() as stop:
        agreement = Agreement(stop, state.fabric.device)
        for batch, clock in state.stopwatch.waiting(loader.batches(state.step)):
            state.set_lr(clock)
            terms, tensors = train_step(state.to_device(batch), state, clock)
            state.step = clock.step + 1
            stopping = agreement.reason()
            ending = bool(stopping) or state.step == loader.last
            if ending or clock.due(train.log_every):
                guard.look_back()
            due = [watch for watch in watches if clock.due(watch.every)]
            names = state.observer.wants(clock) | ({"features", "z"} if due else set())
            shown = _shown(batch, tensors, state, names) if names else None
            if book is not None:
                with state.stopwatch("diagnostics"):
                    book.observe(shown, terms, clock, due)
                if book.collapsed:
                    stop.number = COLLAPSE
                book.step(terms, clock, ending=ending)
            if stopping:
                break
        agreement.settle()
        if any(everyones(book is not None and book.collapsed)):
            raise CollapseError(str(book.verdict) if book is not None else "the first process tells why")
    return stopping if state.step < loader.last else ""


Shown = tuple[Tensor, dict[str, Tensor]]
"""Ids (N,), `features` and `z` of the global batch, detached."""


def _shown(batch: Batch, tensors: Mapping[str, Tensor], state: State, names: set[str]) -> Shown:
    """Every process takes part in gathering it; the first one looks."""
    ids = gather(state.fabric.to_device(batch.ids)[None], images=state.loader.batch_size)[0]
    return ids, {name: tensors[name].detach() for name in sorted(names)}


class Book:
    """What the first process writes down and shows."""

    def __init__(self, state: State, screen: Screen | None) -> None:
        self.state, self.screen, self.folder = state, screen, state.folder
        self.saved = time.monotonic()
        with self._writing():
            self.folder.forget_after(state.step)
            self.pace = Pace(state)
            self.looks = [record for record in self.folder.diagnostics if record.keys() >= LOOK]
            self.asked = [record for record in self.folder.diagnostics if "knn_gain" in record]
            watched = bool(self.looks) or state.config.diagnostics.share > 0
            self.verdict = self._judge() if watched else NOT_WATCHED
            self.good: Path | None = None if self.verdict.bad else newest(self.folder)
            """The newest checkpoint that was saved while the verdict was not a bad one."""
            self._status("running")
        self.loggers = Loggers(self.folder, state.config, state.step)

    def step(self, terms: LossTerms, clock: Clock, *, ending: bool) -> None:
        state, train = self.state, self.state.config.train
        record: dict[str, Any] | None = None
        if clock.due(train.log_every):
            record = {"step": state.step, "epoch": clock.epoch, "lr": state.lr(clock)}
            record |= terms.to_floats() | self.pace.measure(state.step)
            with self._writing():
                self.folder.metrics.append(record)
            self.loggers.log(record)
        if self.screen is not None:
            self.screen.step(state.step, state.loader.last, record)
        minutes = (time.monotonic() - self.saved) / 60
        due = train.checkpoint_every is not None and clock.due(train.checkpoint_every)
        late = train.checkpoint_minutes is not None and minutes >= train.checkpoint_minutes
        if (ending or due or late) and state.guard.good() and not self.collapsed:
            with self._writing():
                saved = save(state, spare=self.good)
                if not self.verdict.bad:
                    self.good = saved
                self._status("running")
                self.folder.bad_batch.unlink(missing_ok=True)  # it lies behind us
            if self.screen is not None:
                self.screen.note("checkpoint")
            self.saved = time.monotonic()

    def observe(self, shown: Shown | None, terms: LossTerms, clock: Clock, watches: Sequence[Watch]) -> None:
        """Let the observer and the watches look at a step, and write down what they say."""
        ids, tensors = shown or (torch.empty(0), {})
        if record := self.state.observer.step(ids, tensors, terms, clock):
            self._diagnose({"epoch": clock.epoch, **record}, looked="z_rank" in record)
        for watch in watches:
            if seen := watch.look(ids.cpu(), tensors, clock):
                self._diagnose(_numbers(seen))

    def _diagnose(self, record: dict[str, Any], *, looked: bool = False) -> None:
        """looked: of the embeddings, so that a verdict can be made."""
        record = {**record, "step": self.state.step, "seconds": self.pace.so_far()}
        with self._writing():
            if "knn_gain" in record:
                self.asked.append(record)
            if looked:
                self.looks.append(record)
                earlier = self.verdict
                self.verdict = self._judge()
                record |= {"verdict": self.verdict.kind, "reason": self.verdict.reason}
                record |= {"advice": self.verdict.advice} if self.verdict.advice else {}
                if self.verdict.kind != earlier.kind:
                    self._status("running")
            self.folder.diagnostics.append(json_record(record))
        if self.screen is not None:
            self.screen.look(record)
        self.loggers.log(record)

    def _judge(self) -> Verdict:
        return judge(self.looks, warmup=self._warmup, asked=self.asked)

    @property
    def collapsed(self) -> bool:
        """Does the run end here?"""
        return self.verdict.stop and self.state.config.diagnostics.stop

    @property
    def _warmup(self) -> int:
        """Steps over which the rate rises."""
        return round(self.state.config.optim.warmup * self.state.loader.total)

    def close(self, ended: str, reason: str, bad_files: Sequence[Mapping[str, str]]) -> None:
        """bad_files: those of each process."""
        with self._writing():
            self._status(ended, reason)
            if any(bad_files):
                self.folder.write_text(self.folder.bad_files.name, bad_file_lines(bad_files))
        self.loggers.close(finished=ended == "finished")

    def fail(self, error: BaseException) -> None:
        """How it ended; of a bad step, what it was about and the state before it. As far as there is room."""
        ended = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = str(error) if isinstance(error, TrainingError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(TrainingError), self._writing():
            if isinstance(error, BadStepError):
                self.folder.write_json(self.folder.bad_batch.name, self._bad_batch(error))
                self.verdict = Verdict("diverging", f"step {error.step} was not finite", LOWER_RATE)
            if isinstance(error, CollapseError):
                forget_after(self.state, self.good)
            self.close(ended, reason, [self.state.loader.source.bad_files()])
            if isinstance(error, BadStepError) and error.step > 0:
                save(self.state, spare=self.good)

    def lost(self, error: LostError) -> None:
        """How it ended, where the main thread can say no more."""
        self._status("failed", str(error))

    def _bad_batch(self, error: BadStepError) -> dict[str, Any]:
        loader = self.state.loader
        ids = loader.ids(error.step).tolist()
        return {
            "step": error.step,
            "epoch": loader.clock(error.step).epoch,
            "processes": loader.processes,
            "term": error.term,
            "numbers": {name: json_number(value) for name, value in error.numbers.items()},
            "ids": ids,
            "images": [loader.source.name(i) for i in ids],
        }

    def _status(self, name: str, reason: str = "") -> None:
        total = self.state.loader.total
        verdict = {"kind": self.verdict.kind, "reason": self.verdict.reason, "advice": self.verdict.advice}
        self.folder.write_status(name, step=self.state.step, total=total, reason=reason, verdict=verdict)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full disk, or one that is gone, in words; and nothing once the run has another writer."""
        self.folder.check_lock()
        try:
            yield
        except OSError as error:
            raise TrainingError(
                f"{self.folder.path} cannot be written ({error.strerror or error}); its newest checkpoint "
                "is intact: make room, then `frossl resume` goes on from there"
            ) from error


def json_number(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else str(value)


def json_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Without the numbers that are not finite, which JSON does not have."""
    return {
        name: value for name, value in record.items() if not isinstance(value, float) or math.isfinite(value)
    }


def requeue() -> None:
    """Put a job of SLURM back in line, after the signal that its time is nearly up."""
    job = os.environ["SLURM_JOB_ID"]
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        report.warning("job %s could not be put back in line (%s); `frossl resume` goes on", job, error)


def _numbers(seen: Mapping[str, float]) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in seen.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(
            f"a watch returned {type(seen).__name__} ({error}); return numbers by name, or None"
        ) from None


class Stop:
    """The signal that asks to stop, read between steps; 0 for none."""

    number = 0


class Agreement:
    """One end for all processes: what signal any of them got, known to all of them one step later."""

    def __init__(self, stop: Stop, device: torch.device) -> None:
        self.stop, self.device = stop, device
        self._asked: Callable[[], Tensor] = lambda: torch.zeros(())

    def reason(self) -> str:
        """The signal's name, or nothing. Every process must ask after every step."""
        if processes() == 1:
            return _name(self.stop.number)
        before = self._asked()
        self._asked = largest(torch.tensor(float(self.stop.number), device=self.device))
        return _name(int(before))

    def settle(self) -> None:
        self._asked()


def _name(number: int) -> str:
    if number == COLLAPSE:
        return COLLAPSED
    return signal.Signals(number).name if number else ""


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM end the run after the current step; a second one ends it at once.

    So does SIGUSR1 in a job of SLURM, which then goes back in line.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals belong to the main thread: the caller's business
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.number:
            raise KeyboardInterrupt
        stop.number = number

    asking = [signal.SIGINT, signal.SIGTERM]
    if "SLURM_JOB_ID" in os.environ:
        asking.append(signal.SIGUSR1)
    earlier = {number: signal.signal(number, ask) for number in asking}
    try:
        yield stop
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def _private_random_state(state: State) -> Iterator[None]:
    """Every step seeds torch; the caller's random numbers stay as they were."""
    devices = [state.fabric.device] if state.fabric.device.type == "cuda" else []
    with own_random_numbers(devices):
        yield


class Pace:
    """Seconds of training so far, earlier sittings included, and images per second since last asked."""

    def __init__(self, state: State) -> None:
        self.batch_size, self.step, self.time = state.loader.batch_size, state.step, time.perf_counter()
        self.device, self.stopwatch = state.fabric.device, state.stopwatch
        self.seconds = max((record["seconds"] for record in state.folder.metrics), default=0.0)

    def so_far(self) -> float:
        return round(self.seconds + time.perf_counter() - self.time, 3)

    def measure(self, step: int) -> dict[str, float]:
        now = time.perf_counter()
        passed, steps = now - self.time, step - self.step
        self.time, self.step = now, step
        self.seconds += passed
        speed = steps * self.batch_size / max(passed, 1e-9)
        return {
            "seconds": round(self.seconds, 3),
            "images_per_second": round(speed, 1),
            "memory_gb": round(peak_memory(self.device) / 1e9, 3),
            **self.stopwatch.read(steps),
        }


def peak_memory(device: torch.device) -> float:
    """Bytes: of the device, or of this process, whatever it did before."""
    status = Path("/proc/self/status")
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if status.is_file():  # Linux, where ru_maxrss begins with that of the process that started this one
        return 1024 * float(status.read_text().partition("VmHWM:")[2].split()[0])
    if sys.platform == "win32":
        return 0.0
    import resource  # Windows has none

    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # bytes, on macOS
