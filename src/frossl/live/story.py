"""What is known of a run while it lives, as the engine tells it or its folder says."""

from __future__ import annotations

import bisect
import math
import time
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from frossl.errors import InputError
from frossl.live.words import clock, harmless
from frossl.runs import RunFolder
from frossl.runs.outcome import ALSO, BETTER, NO_BETTER_THAN_PIXELS, WORSE
from frossl.runs.outcome import BAD as UNSAVED
from frossl.runs.record import is_count

BAD = (*UNSAVED, "forgetting", NO_BETTER_THAN_PIXELS, WORSE)
"""Verdicts that must not be overlooked."""
WELL = ("learning", BETTER)
WAITING = "waiting for the first step"
MOST_POINTS = 512
MOST_LINES = 200
MINUTE = 60.0
"""The speed is that of the last minute, or of the last tenth of a long run."""

Points = tuple[tuple[float, float], ...]


class Line(NamedTuple):
    """What happened, and when."""

    step: int
    text: str
    kept: bool = False
    """It must not be overlooked."""


class Story:
    """All that a screen shows. Its values are replaced, never changed, so that a second thread may read them.

    step, look, status: from records as they are in `metrics.jsonl`, `diagnostics.jsonl` and `status.json`.
    """

    def __init__(self, *, title: str = "", about: str = "", largest_rank: int = 0, epochs: int = 0) -> None:
        self.title, self.about = harmless(title), harmless(about)
        self.largest_rank, self.epochs = largest_rank, epochs
        self.now, self.total = 0, 0
        self.record: Mapping[str, float] = {}
        self.numbers: Mapping[str, float] = {}
        """The newest of every number that a look found, as not all looks find all of them."""
        self.kind, self.reason, self.advice = "", "", ""
        self.also: tuple[str, ...] = ()
        """Sentences that go with a verdict: of the training, or that accuracy was not measured."""
        self.state, self.ending = "running", ""
        self.silence = 0.0
        """Seconds without news, where that is long."""
        self.losses: Points = ()
        self.times: Points = ((0, 0.0),)
        """Steps and seconds of training, in this sitting."""
        self.lines: tuple[Line, ...] = ()
        self._heard: float | None = None
        self._said: Mapping[str, str] = {}

    @classmethod
    def of(cls, folder: RunFolder) -> Story:
        """Of a run of which only the configuration is known yet."""
        known = _configuration(folder)
        train, network = known.get("train", {}), known.get("network", {})
        objective, data = known.get("objective", {}), known.get("data", {})
        images = _images(folder)
        about = [objective.get("method"), network.get("backbone")]
        about += [f"{images:,} images" if images else None, data.get("source")]
        batch, width, epochs = (
            value if is_count(value) else 0
            for value in (train.get("batch_size"), network.get("projector_out"), train.get("epochs"))
        )
        return cls(
            title=str(folder.path),
            about="  ".join(str(word) for word in about if word),
            largest_rank=min(batch, images or batch, width),
            epochs=epochs,
        )

    def step(self, step: int, total: int, record: Mapping[str, Any] | None, *, fresh: bool = True) -> None:
        """fresh: it has just happened."""
        self.now, self.total = max(self.now, step), total
        if record is None:
            return
        self.record = {name: value for name, value in record.items() if is_number(value)}
        if math.isfinite(loss := self.record.get("loss", math.nan)):
            self.losses = _thinned((*self.losses, (step, loss)))
        if "seconds" in self.record:
            self.times = _thinned((*self.times, (step, self.record["seconds"])))
            self._heard = time.monotonic() if fresh else None

    def look(self, record: Mapping[str, Any]) -> str:
        """The verdict, where it has become a bad one or is one no longer; else nothing."""
        found = {name: value for name, value in record.items() if is_number(value)}
        self.numbers = {**self.numbers, **found}
        before, kind = self.kind, record.get("verdict", self.kind)
        if kind != before or "reason" in record:
            self._judge(
                {"kind": kind, **record} if "reason" in record else {"kind": kind, **self._said_of(kind)}
            )
        if self.kind == before:
            return ""
        bad = self.kind in BAD or before in BAD
        if before:
            self.note(self.verdict, step=record.get("step"), kept=bad)
        return self.verdict if bad else ""

    def status(self, status: Mapping[str, Any]) -> None:
        self.now, self.total = max(self.now, status["step"]), status["total"] or self.total
        self.state, self.ending = status["state"], harmless(status["reason"])
        self._said = status.get("verdict") or {}
        ended = self.state not in ("running", "finished")
        if self._said and (ended or (self._said_of(self.kind) and not self.reason)):
            self._judge(self._said)

    def conclude(self) -> None:
        """After all looks: the verdict on a run that has finished weighs more than they do."""
        if self.state == "finished" and self._said:
            self._judge(self._said)

    def _said_of(self, kind: str) -> Mapping[str, str]:
        """What the status says of this verdict, if it is about it."""
        return self._said if self._said.get("kind") == kind else {}

    def _judge(self, verdict: Mapping[str, str]) -> None:
        self.kind, self.reason, self.advice = (
            harmless(verdict.get(name, "")) for name in ("kind", "reason", "advice")
        )
        self.also = tuple(harmless(verdict[name]) for name in ALSO if verdict.get(name))

    def note(self, text: str, *, step: int | None = None, kept: bool = False) -> None:
        """A line for those who look closely; `kept`: for all others too."""
        lines, line = list(self.lines), Line(self.now if step is None else step, harmless(text), kept)
        bisect.insort(lines, line, key=lambda line: line.step)
        self.lines = tuple(lines[-MOST_LINES:])

    def begin(self, step: int) -> None:
        """A sitting: what was before it says nothing about the speed."""
        self.now, self.times = step, ((step, self.record.get("seconds", 0.0)),)

    @property
    def verdict(self) -> str:
        """`collapsing: why; what to try`."""
        return ": ".join(filter(None, (self.kind, "; ".join(filter(None, (self.reason, self.advice))))))

    @property
    def rank(self) -> float | None:
        value = self.record.get("effective_rank", self.numbers.get("z_rank"))
        return value if value is None or math.isfinite(value) else None

    def seconds_per_step(self) -> float | None:
        last, passed = self.times[-1]
        since = passed - max(MINUTE, 0.1 * (passed - self.times[0][1]))
        step, seconds = next((point for point in self.times if point[1] >= since), self.times[-1])
        if step == last:  # all in one record
            step, seconds = self.times[-2] if len(self.times) > 1 else (last, passed)
        return (passed - seconds) / (last - step) if last > step and passed > seconds else None

    def left(self) -> float | None:
        pace = self.seconds_per_step()
        return None if pace is None else pace * max(0, self.total - self.now)

    def passed(self) -> float:
        """Seconds of training."""
        alive = self.state == "running" and not self.silence and self._heard is not None
        since = time.monotonic() - self._heard if alive and self._heard is not None else 0.0
        return float(self.times[-1][1]) + since

    def end(self) -> str:
        """How it ended, or that it has not."""
        if self.silence:
            return f"no news for {clock(self.silence)}"
        how = {"stopped": " by ", "failed": ": "}.get(self.state, "")
        return self.state + (how + self.ending if self.ending else "")

    def line(self) -> str:
        """`step 10/1716  4:06 left  loss -1.979  rank 22/128  888 images/s  warming up`."""
        if not self.total:
            return WAITING
        words = [f"step {self.now}/{self.total}"]
        if self.state == "running" and (left := self.left()) is not None:
            words.append(f"{clock(left)} left")
        if "loss" in self.record:
            words.append(f"loss {self.record['loss']:.3f}")
        if self.rank is not None:
            words.append(f"rank {self.rank:.0f}/{self.largest_rank}")
        if "images_per_second" in self.record:
            words.append(f"{self.record['images_per_second']:,.0f} images/s")
        return "  ".join([*words, *filter(None, [self.kind])])


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _thinned(points: Points) -> Points:
    """Of many, every second one: old ones become few, new ones stay."""
    return points if len(points) <= MOST_POINTS else (*points[:-1:2], points[-1])


def _configuration(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """The tables of config.toml, as far as they can be read: whoever looks on needs no more."""
    try:
        known = tomllib.loads(folder.config_file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return {name: table for name, table in known.items() if isinstance(table, dict)}


def _images(folder: RunFolder) -> int:
    try:
        return int(folder.read_json("provenance.json")["images"])
    except (OSError, InputError, KeyError, TypeError, ValueError):
        return 0
