"""Write the metrics, diagnostics, status and checkpoints of a run; done by the main process alone."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from frossl.diagnostics import LOWER_RATE, NOT_WATCHED, Verdict, judge
from frossl.engine.build import State
from frossl.engine.checkpoint import forget_after, newest, save
from frossl.engine.loggers import Loggers
from frossl.errors import BadStepError, CollapseError, LostError, TrainingError
from frossl.runs import DiagnosticRecord, RunFolder, StepRecord, bad_file_lines
from frossl.types import Callback, Clock, LossTerms

StepTensors = tuple[Tensor, dict[str, Tensor]]
"""Ids (N,), `features` and `z` of the global batch, detached."""


class Display(Protocol):
    """Display of a running training, such as the dashboard."""

    def step(self, step: int, total: int, record: StepRecord | None) -> None:
        """Show that a step is done; `record` is its metrics on log steps, else None."""

    def diagnostic(self, record: DiagnosticRecord) -> None:
        """Show a diagnostic record, with the verdict, its `reason` and `advice`."""

    def note(self, text: str) -> None:
        """Show a minor event, such as a checkpoint."""

    def message(self, text: str) -> None:
        """Show an important message."""


class Recorder:
    """Writer of everything that a run records; exists on the main process only."""

    def __init__(self, state: State, folder: RunFolder, screen: Display | None) -> None:
        self.state, self.folder, self.screen = state, folder, screen
        self.saved = time.monotonic()
        with self._writing():
            self.folder.truncate_after(state.step)
            self.throughput = Throughput(state, self.folder)
            self.records = [record for record in self.folder.diagnostics if record.has_embeddings]
            self.online = [record for record in self.folder.diagnostics if "knn_gain" in record]
            watched = bool(self.records) or state.config.diagnostics.share > 0
            self.verdict = self._judge() if watched else NOT_WATCHED
            self.good: Path | None = None if self.verdict.bad else newest(self.folder)
            """Newest checkpoint that was saved while the verdict was good."""
            self._status("running")
        self.loggers = Loggers(self.folder, state.config, state.step)

    def step(self, terms: LossTerms, clock: Clock, *, ending: bool) -> None:
        state, train = self.state, self.state.config.train
        record: StepRecord | None = None
        if clock.due(train.log_every):
            values = {"step": state.step, "epoch": clock.epoch, "lr": state.lr(clock)}
            values |= self.throughput.measure(state.step)
            record = StepRecord.of(values, terms.to_floats(), terms.parts)
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
                saved = save(state, self.folder, spare=self.good)
                if not self.verdict.bad:
                    self.good = saved
                self._status("running")
                self.folder.bad_batch.unlink(missing_ok=True)  # it lies behind us
            if self.screen is not None:
                self.screen.note("checkpoint")
            self.saved = time.monotonic()

    def observe(
        self, shown: StepTensors | None, terms: LossTerms, clock: Clock, callbacks: Sequence[Callback]
    ) -> None:
        """Run the monitor and the callbacks that are due, and record what they return."""
        ids, tensors = shown or (torch.empty(0), {})
        if record := self.state.monitor.step(ids, tensors, terms, clock):
            self._diagnose({"epoch": clock.epoch, **record})
        for callback in callbacks:
            if seen := callback.function(ids.cpu(), tensors, clock):
                self._diagnose(_numbers(seen))

    def _diagnose(self, numbers: Mapping[str, Any]) -> None:
        """Write a diagnostic record; diagnostics of the embeddings also update the verdict."""
        placed = {**numbers, "step": self.state.step, "seconds": self.throughput.so_far()}
        record = DiagnosticRecord.new(placed)
        with self._writing():
            if "knn_gain" in record:
                self.online.append(record)
            if record.has_embeddings:
                self.records.append(record)
                earlier = self.verdict
                self.verdict = self._judge()
                record |= {"verdict": self.verdict.kind, "reason": self.verdict.reason}
                record |= {"advice": self.verdict.advice} if self.verdict.advice else {}
                if self.verdict.kind != earlier.kind:
                    self._status("running")
            self.folder.diagnostics.append(record.finite())
        if self.screen is not None:
            self.screen.diagnostic(record)
        self.loggers.log(record)

    def settled(self, before: int) -> None:
        """Write a new number of steps into the configuration; `before` is the earlier one."""
        state = self.state
        with self._writing():
            self.folder.write_text(self.folder.config_file.name, state.config.to_toml())
            self._status("running")
        if self.screen is not None:
            speed = "slower" if state.loader.total < before else "faster"
            self.screen.message(
                f"steps have become {speed}: to end within the budget, {before} become {state.loader.total}"
            )

    def _judge(self) -> Verdict:
        return judge(self.records, warmup=self._warmup, asked=self.online)

    @property
    def collapsed(self) -> bool:
        """Whether the run has collapsed and must stop."""
        return self.verdict.stop and self.state.config.diagnostics.stop

    @property
    def _warmup(self) -> int:
        """Number of warm-up steps."""
        loader = self.state.loader
        return loader.step_at(round(self.state.config.optim.warmup * loader.planned))

    def close(self, ended: str, reason: str, bad_files: Sequence[Mapping[str, str]]) -> None:
        """Record how the run ended; `bad_files` are the unreadable files of each process."""
        with self._writing():
            self._status(ended, reason)
            if any(bad_files):
                self.folder.write_text(self.folder.bad_files.name, bad_file_lines(bad_files))
        self.loggers.close(finished=ended == "finished")

    def fail(self, error: BaseException) -> None:
        """Record a failure; for a bad step also its batch and a checkpoint before it."""
        ended = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = str(error) if isinstance(error, TrainingError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(TrainingError), self._writing():
            if isinstance(error, BadStepError):
                self.folder.write_json(self.folder.bad_batch.name, self._bad_batch(error))
                self.verdict = Verdict("diverging", f"step {error.step} was not finite", LOWER_RATE)
            if isinstance(error, CollapseError):
                forget_after(self.folder, self.good)
            self.close(ended, reason, [self.state.loader.source.bad_files()])
            if isinstance(error, BadStepError) and error.step > 0:
                save(self.state, self.folder, spare=self.good)

    def lost(self, error: LostError) -> None:
        """Record that another process was lost; called from the heartbeat thread."""
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
        """Check the lock before a write, and turn a failed write into a `TrainingError`."""
        self.folder.check_lock()
        try:
            yield
        except OSError as error:
            raise TrainingError(
                f"{self.folder.path} cannot be written ({error.strerror or error}); its newest checkpoint "
                "is intact: make room, then `frossl resume` goes on from there"
            ) from error


def json_number(value: float) -> float | str:
    """Return a number that JSON can hold: NaN and infinity become text."""
    return value if math.isfinite(value) else str(value)


def _numbers(seen: Mapping[str, float]) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in seen.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(
            f"a callback returned {type(seen).__name__} ({error}); return numbers by name, or None"
        ) from None


class Throughput:
    """Throughput of a run: seconds of training, earlier processes included, and images per second."""

    def __init__(self, state: State, folder: RunFolder) -> None:
        self.batch_size, self.step, self.time = state.loader.batch_size, state.step, time.perf_counter()
        self.device, self.stopwatch = state.fabric.device, state.stopwatch
        self.seconds = folder.training_seconds()

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
    """Return the peak memory in bytes, of the device or of this process."""
    status = Path("/proc/self/status")
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if status.is_file():  # Linux, where ru_maxrss begins with that of the process that started this one
        return 1024 * float(status.read_text().partition("VmHWM:")[2].split()[0])
    if sys.platform == "win32":
        return 0.0
    import resource  # Windows has none

    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # bytes, on macOS
