"""State of a run as a display shows it, filled by the engine or from the run folder."""

from __future__ import annotations

import bisect
import time
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from frossl.errors import InputError
from frossl.runs import DiagnosticRecord, RunFolder, Status, StepRecord
from frossl.runs.outcome import BAD_VERDICTS, BETTER, NO_BETTER_THAN_PIXELS, VERDICT_NOTES, WORSE
from frossl.runs.records import is_count, is_number
from frossl.text import clock, method_title, sanitize

BAD = (*BAD_VERDICTS, "forgetting", NO_BETTER_THAN_PIXELS, WORSE)
"""Verdicts that are shown as a warning."""
GOOD = ("learning", BETTER)
"""Verdicts that are shown as a success."""
WAITING = "waiting for the first step"
MAX_POINTS = 512
"""Largest number of points of a curve; beyond it, curves are thinned out."""
MAX_LINES = 200
"""Number of events to remember."""
SPEED_WINDOW = 60.0
"""Seconds that the speed is averaged over; for a long run, its last tenth if that is longer."""

Points = tuple[tuple[float, float], ...]
"""Pairs of a step and a value."""


class Line(NamedTuple):
    """Event of a run, with its step."""

    step: int
    text: str
    important: bool = False
    """Whether the line stays visible after the run has ended."""


class RunView:
    """State of a run that a display shows.

    `step`, `diagnostic` and `status` take records of `metrics.jsonl`, `diagnostics.jsonl` and `status.json`.
    Attributes are replaced, never modified in place, so that a second thread may read them.
    """

    def __init__(self, *, title: str = "", about: str = "", largest_rank: int = 0, epochs: int = 0) -> None:
        self.title, self.about = sanitize(title), sanitize(about)
        self.largest_rank, self.epochs = largest_rank, epochs
        self.now, self.total = 0, 0
        self.record: StepRecord | None = None
        """Newest record of a training step."""
        self.numbers: Mapping[str, float] = {}
        """Newest value of every number in the diagnostics records; not every record has all of them."""
        self.kind, self.reason, self.advice = "", "", ""
        self.also: tuple[str, ...] = ()
        """Sentences that accompany a verdict: on the training, or that accuracy was not measured."""
        self.state, self.ending = "running", ""
        self.silence = 0.0
        """Seconds since the last record if the run seems to hang, else 0."""
        self.losses: Points = ()
        self.times: Points = ((0, 0.0),)
        """Steps and seconds of training since the run was started or last resumed."""
        self.lines: tuple[Line, ...] = ()
        self._last_record: float | None = None
        self._stored_verdict: Mapping[str, str] = {}

    @classmethod
    def of(cls, folder: RunFolder) -> RunView:
        """Return the view of a run folder from its configuration alone, before any record is read."""
        config = _configuration(folder)
        train, network = config.get("train", {}), config.get("network", {})
        objective, data = config.get("objective", {}), config.get("data", {})
        images = _images(folder)
        about = [method_title(str(objective.get("method") or "")), network.get("backbone")]
        about += [f"{images:,} images" if images else None, data.get("source")]
        batch, width, epochs = (
            value if is_count(value) else 0
            for value in (train.get("batch_size"), network.get("projector_out"), train.get("epochs"))
        )
        return cls(
            title=str(folder.path),
            about="  ".join(str(word) for word in about if word),
            largest_rank=min(batch, images or batch, width),
            epochs=0 if "steps" in train else epochs,  # that number may change
        )

    def step(self, step: int, total: int, record: StepRecord | None, *, fresh: bool = True) -> None:
        """Take over a step.

        Args:
            step: Number of steps done.
            total: Number of steps of the whole run.
            record: Record of `metrics.jsonl` on steps that are logged, else None.
            fresh: Whether the step has just been done; False for records read from an earlier time.
        """
        self.now, self.total = max(self.now, step), total
        if record is None:
            return
        self.record = record
        if record.loss is not None:
            self.losses = _thinned((*self.losses, (step, record.loss)))
        if record.seconds is not None:
            self.times = _thinned((*self.times, (step, record.seconds)))
            self._last_record = time.monotonic() if fresh else None

    def diagnostic(self, record: DiagnosticRecord) -> str:
        """Take over a record of `diagnostics.jsonl`.

        Returns:
            The verdict if it became bad or stopped being bad, else an empty string.
        """
        self.numbers = {**self.numbers, **record.numbers()}
        before, kind = self.kind, self.kind if record.verdict is None else record.verdict
        if kind != before or "reason" in record:
            self._set_verdict(
                {"kind": kind, **record} if "reason" in record else {"kind": kind, **self._stored_as(kind)}
            )
        if self.kind == before:
            return ""
        bad = self.kind in BAD or before in BAD
        if before:
            self.note(self.verdict, step=record.step, important=bad)
        return self.verdict if bad else ""

    def status(self, status: Status) -> None:
        """Take over the content of `status.json`."""
        self.now, self.total = max(self.now, status.step), status.total or self.total
        self.state, self.ending = status.state, sanitize(status.reason)
        self._stored_verdict = status.verdict
        ended = self.state not in ("running", "finished")
        if self._stored_verdict and (ended or (self._stored_as(self.kind) and not self.reason)):
            self._set_verdict(self._stored_verdict)

    def conclude(self) -> None:
        """Use the verdict of a finished run in place of that of the last diagnostics record."""
        if self.state == "finished" and self._stored_verdict:
            self._set_verdict(self._stored_verdict)

    def _stored_as(self, kind: str) -> Mapping[str, str]:
        """Return the verdict of the status if it is of this kind, else an empty mapping."""
        return self._stored_verdict if self._stored_verdict.get("kind") == kind else {}

    def _set_verdict(self, verdict: Mapping[str, str]) -> None:
        self.kind, self.reason, self.advice = (
            sanitize(verdict.get(name, "")) for name in ("kind", "reason", "advice")
        )
        self.also = tuple(sanitize(verdict[name]) for name in VERDICT_NOTES if verdict.get(name))

    def note(self, text: str, *, step: int | None = None, important: bool = False) -> None:
        """Add an event.

        Args:
            text: One line of text.
            step: Step of the event; the current one if None.
            important: Whether the line stays visible after the run has ended.
        """
        lines, line = list(self.lines), Line(self.now if step is None else step, sanitize(text), important)
        bisect.insort(lines, line, key=lambda line: line.step)
        self.lines = tuple(lines[-MAX_LINES:])

    def begin(self, step: int) -> None:
        """Start at a step, as a resumed run does: earlier records do not count for the speed."""
        self.now, self.times = step, ((step, 0.0 if self.record is None else self.record.seconds or 0.0),)

    @property
    def verdict(self) -> str:
        """Verdict in one line: `collapsing: reason; advice`."""
        return ": ".join(filter(None, (self.kind, "; ".join(filter(None, (self.reason, self.advice))))))

    @property
    def rank(self) -> float | None:
        """Newest effective rank of the projections."""
        value = None if self.record is None else self.record.number("effective_rank")
        value = self.numbers.get("z_rank") if value is None else value
        return value if is_number(value) else None

    def seconds_per_step(self) -> float | None:
        """Return the mean time of the steps in the speed window; None before there are two records."""
        last, elapsed = self.times[-1]
        since = elapsed - max(SPEED_WINDOW, 0.1 * (elapsed - self.times[0][1]))
        step, seconds = next((point for point in self.times if point[1] >= since), self.times[-1])
        if step == last:  # the interval of one record is longer than the window
            step, seconds = self.times[-2] if len(self.times) > 1 else (last, elapsed)
        return (elapsed - seconds) / (last - step) if last > step and elapsed > seconds else None

    def remaining(self) -> float | None:
        """Return the estimated seconds until the end; None while the speed is unknown."""
        seconds = self.seconds_per_step()
        return None if seconds is None else seconds * max(0, self.total - self.now)

    def elapsed(self) -> float:
        """Return the seconds of training."""
        alive = self.state == "running" and not self.silence and self._last_record is not None
        since = time.monotonic() - self._last_record if alive and self._last_record is not None else 0.0
        return float(self.times[-1][1]) + since

    def end(self) -> str:
        """Return how the run ended, or its state if it has not."""
        if self.silence:
            return f"no new records for {clock(self.silence)}"
        how = {"stopped": " by ", "failed": ": "}.get(self.state, "")
        return self.state + (how + self.ending if self.ending else "")

    def line(self) -> str:
        """Return one line: `step 10/1716  4:06 left  loss -1.979  rank 22/128  888 images/s  warming up`."""
        if not self.total:
            return WAITING
        words = [f"step {self.now}/{self.total}"]
        if self.state == "running" and (remaining := self.remaining()) is not None:
            words.append(f"{clock(remaining)} left")
        if self.record is not None and "loss" in self.record.numbers():
            words.append(f"loss {self.record['loss']:.3f}")
        if self.rank is not None:
            words.append(f"rank {self.rank:.0f}/{self.largest_rank}")
        if self.record is not None and self.record.images_per_second is not None:
            words.append(f"{self.record.images_per_second:,.0f} images/s")
        return "  ".join([*words, *filter(None, [self.kind])])


def _thinned(points: Points) -> Points:
    """Drop every second point of a curve that is too long: old points become sparse, new ones stay."""
    return points if len(points) <= MAX_POINTS else (*points[:-1:2], points[-1])


def _configuration(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Return the tables of config.toml; empty if it cannot be read, as a display works without it."""
    try:
        config = tomllib.loads(folder.config_file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return {name: table for name, table in config.items() if isinstance(table, dict)}


def _images(folder: RunFolder) -> int:
    try:
        return int(folder.read_json("provenance.json")["images"])
    except (OSError, InputError, KeyError, TypeError, ValueError):
        return 0
