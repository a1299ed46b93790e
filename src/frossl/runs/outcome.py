"""What came of a run: one plain word, from what was measured at its end and after it. No torch."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from frossl.errors import InputError
from frossl.intervals import unpaired_interval
from frossl.runs.folder import RunFolder
from frossl.runs.record import TEXT

BETTER = "better than pixels and untrained"
NO_BETTER_THAN_PIXELS = "no better than pixels"
NO_BETTER_THAN_START = "no better than it started"
WORSE = "worse than it started"
WEIGHED = (BETTER, NO_BETTER_THAN_PIXELS, NO_BETTER_THAN_START, WORSE)
"""Verdicts that weigh accuracies; all others are made without labels, while a run trains."""
BAD = ("collapsing", "diverging")
"""Verdicts that no accuracy makes good."""
NOT_MEASURED = "accuracy not measured"
ALSO = ("training", "accuracy")
"""Sentences that go with a verdict, where it has them."""

LARGEST_K = 20
MEASURED = re.compile(r"kNN, k (\d+)(, brief)?")
"""The protocol that a verdict is made by; `brief` is on a part of the images."""

GENTLER = "train more gently: a lower rate (--lr) or more frozen layers (--set network.freeze=N)"
LONGER = "train longer (--budget), or with more steps in the same time on smaller images (--set data.size=N)"
OTHERWISE = (
    "more steps like these bring little: try other views (--view-set), another method (--method) or a larger "
    "network (--backbone)"
)
PUBLIC = "begin from public weights (--recipe continue --backbone NAME --weights FILE)"
AGAINST = "`frossl knn RUN --against NAME` measures a public encoder beside it"
ALL_IMAGES = "`frossl knn RUN` measures all test images, which tells more"

Record = Mapping[str, Any]


def outcome(
    status: Record, looks: Iterable[Record], evaluation: Iterable[Record], *, source: str, weights: bool
) -> dict[str, str]:
    """The verdict on a run as `kind`, `reason` and `advice`, with a sentence on `training` where accuracies
    were weighed, and on `accuracy` where they were not.

    Nothing but the records of the run folder counts, so closing a run again says the same. looks: records of
    diagnostics.jsonl. source: the data that it was trained on. weights: it began from a file of weights.
    """
    before = _without_labels(status, looks)
    figures = _figures(evaluation, status.get("step"), source)
    if before.get("kind") in BAD or figures is None:
        said = _texts(status.get("verdict")).get("accuracy")
        measured = said or NOT_MEASURED if figures is None else figures.sentence(weights=weights)
        return {**before, "accuracy": measured}
    longer = OTHERWISE if before.get("kind") == "saturated" else LONGER
    kind, advice = _weighed(figures, weights=weights, longer=longer)
    found = {"kind": kind, "reason": figures.sentence(weights=weights), "advice": advice}
    if (known := _texts(status.get("verdict")).get("training")) is not None:
        found["training"] = known
    if before.get("kind") not in (None, "warming up"):
        said = "; ".join(before[name] for name in ("reason", "advice") if before.get(name))
        found["training"] = f"while training: {before['kind']}: {said}"
    return found


def outcome_of(folder: RunFolder) -> dict[str, str]:
    """The verdict on the run in a folder, as far as its files can be read."""
    known: dict[str, Any] = {}
    for name in ("status.json", "provenance.json"):
        try:
            known[name] = folder.read_json(name)
        except (OSError, InputError):
            known[name] = {}
    try:
        config = tomllib.loads(folder.config_file.read_text(**TEXT))
    except (OSError, tomllib.TOMLDecodeError):
        config = {}
    return outcome(
        _table(known["status.json"]),
        folder.diagnostics,
        folder.evaluation,
        source=str(_table(config.get("data")).get("source", "")),
        weights=bool(_table(config.get("network")).get("weights")),
    )


@dataclass(frozen=True)
class _Gain:
    """How far the trained network is above something else, in points."""

    percent: float
    points: float
    low: float
    high: float

    def __str__(self) -> str:
        between = f"95% interval {self.low:+.1f} to {self.high:+.1f}"
        return f"{self.percent:.1f}% ({self.points:+.1f} points, {between})"


@dataclass(frozen=True)
class _Figures:
    """What a verdict is made of: one record of kNN."""

    percent: float
    images: int
    brief: bool
    pixels: _Gain
    start: _Gain
    colors: _Gain | None

    @classmethod
    def of(cls, record: Record, *, brief: bool) -> _Figures | None:
        """None where the record has not all of it."""
        percent, images = _table(record.get("percent")).get("trained"), record.get("images")
        pixels, start = _gain(record, "pixels"), _gain(record, "untrained")
        if not is_number(percent) or not isinstance(images, int) or pixels is None or start is None:
            return None
        return cls(percent, images, brief, pixels, start, _gain(record, "colors"))

    def sentence(self, *, weights: bool) -> str:
        start = "the weights it began from" if weights else "the untrained network"
        said = (
            f"kNN is right on {self.percent:.1f}% of {self.images:,} test images, where raw pixels have "
            f"{self.pixels} and {start} {'have' if weights else 'has'} {self.start}"
        )
        if self.colors is not None and self.colors.low <= 0 < self.pixels.low:
            said += f"; it is no better than color statistics, which have {self.colors}"
        return said


def _weighed(figures: _Figures, *, weights: bool, longer: str) -> tuple[str, str]:
    """The kind of verdict, and what to do. longer: what is said of more steps."""
    pixels, start = figures.pixels, figures.start
    kept = "use the weights as they were, or "
    if start.high < 0:
        return WORSE, kept + GENTLER if weights else f"look at the views (frossl views); {longer}"
    if pixels.low <= 0:
        advice = [longer, AGAINST] if weights else [longer, PUBLIC, AGAINST]
        return NO_BETTER_THAN_PIXELS, _with_more_images(advice, figures, pixels)
    if start.low <= 0:
        return NO_BETTER_THAN_START, _with_more_images([kept + longer if weights else longer], figures, start)
    return BETTER, AGAINST


def _with_more_images(advice: list[str], figures: _Figures, gain: _Gain) -> str:
    """Where a part of the images could not tell a difference, all of them may."""
    return "; ".join([*advice, ALL_IMAGES] if figures.brief and gain.low <= 0 <= gain.high else advice)


def _figures(evaluation: Iterable[Record], step: object, source: str) -> _Figures | None:
    """Those of the newest whole measurement on the run's own images, at its last step; without one,
    of the brief one. Of several k, that of the largest up to 20."""
    found = [
        (record, int(match[1]), bool(match[2]))
        for record in evaluation
        if (match := MEASURED.fullmatch(str(record.get("protocol")))) and record.get("step") == step
    ]
    own = {record.get("data") for record, _, brief in found if brief} or {source}
    best: tuple[tuple[bool, int], _Figures] | None = None
    for record, k, brief in found:
        figures = _Figures.of(record, brief=brief)
        if figures is None or k > LARGEST_K or record.get("data") not in own:
            continue
        if best is None or (not brief, k) >= best[0]:
            best = (not brief, k), figures
    return None if best is None else best[1]


def _gain(record: Record, row: str) -> _Gain | None:
    """Of the trained network above a row; from the intervals of both, where a run of 0.1.0 kept no more."""
    percent, interval = _table(record.get("percent")), _table(record.get("interval"))
    trained, other = percent.get("trained"), percent.get(row)
    if not (is_number(trained) and is_number(other)):
        return None
    between = _table(record.get("difference_interval")).get(row)
    if _is_pair(between):
        return _Gain(other, trained - other, between[0], between[1])
    of_trained, of_other = interval.get("trained"), interval.get(row)
    if not (_is_pair(of_trained) and _is_pair(of_other)):
        return None
    return _Gain(other, trained - other, *unpaired_interval(trained, of_trained, other, of_other))


def _without_labels(status: Record, looks: Iterable[Record]) -> dict[str, str]:
    """The verdict that was made while it trained."""
    said = _texts(status.get("verdict"))
    if said.get("kind") in WEIGHED:
        judged = [look for look in looks if isinstance(look.get("verdict"), str)]
        last = _texts(judged[-1]) if judged else {}
        said = {"kind": last.get("verdict", "warming up"), **last}
    return {name: said[name] for name in ("kind", "reason", "advice") if name in said}


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_pair(value: object) -> TypeGuard[Sequence[float]]:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(is_number, value))


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> dict[str, str]:
    return {name: text for name, text in _table(value).items() if isinstance(text, str)}
