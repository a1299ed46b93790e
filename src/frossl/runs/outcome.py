"""Verdict on a run, from its diagnostics and from the evaluations at its end and after it. No torch."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from frossl.errors import InputError
from frossl.intervals import unpaired_interval
from frossl.runs.folder import RunFolder
from frossl.runs.record import TEXT, is_number

BETTER = "better than pixels and untrained"
NO_BETTER_THAN_PIXELS = "no better than pixels"
NO_BETTER_THAN_START = "no better than it started"
WORSE = "worse than it started"
ACCURACY_VERDICTS = (BETTER, NO_BETTER_THAN_PIXELS, NO_BETTER_THAN_START, WORSE)
"""Verdicts from accuracies; all others are made without labels, while a run trains."""
BAD_VERDICTS = ("collapsing", "diverging")
"""Verdicts that no accuracy can improve."""
NOT_MEASURED = "accuracy not measured"
VERDICT_NOTES = ("training", "accuracy")
"""Keys of a verdict that hold additional sentences; both are optional."""

LARGEST_K = 20
"""Largest k whose kNN accuracy counts for a verdict."""
KNN_PROTOCOL = re.compile(r"kNN, k (\d+)(, brief)?")
"""Name of the protocol that a verdict is based on; `brief` uses a part of the images."""

ADVICE_GENTLER = "train more gently: a lower rate (--lr) or more frozen layers (--set network.freeze=N)"
ADVICE_LONGER = (
    "train longer (--budget), or with more steps in the same time on smaller images (--set data.size=N)"
)
ADVICE_SATURATED = (
    "more steps like these bring little: try other views (--view-set), another method (--method) or a larger "
    "network (--backbone)"
)
ADVICE_PUBLIC_WEIGHTS = "begin from public weights (--recipe continue --backbone NAME --weights FILE)"
ADVICE_COMPARE = "`frossl knn RUN --against NAME` measures a public encoder beside it"
ADVICE_ALL_IMAGES = "`frossl knn RUN` measures all test images, which tells more"

Record = Mapping[str, Any]


def outcome(
    status: Record, diagnostics: Iterable[Record], evaluation: Iterable[Record], *, source: str, weights: bool
) -> dict[str, str]:
    """Return the verdict on a run.

    It depends only on the records of the run folder, so finishing a run again gives the same verdict.

    Args:
        status: Content of status.json.
        diagnostics: Records of diagnostics.jsonl.
        evaluation: Records of evaluation.jsonl.
        source: Name of the data that the run was trained on.
        weights: Whether the run started from a file of weights.

    Returns:
        `kind`, `reason` and `advice`; also `training`, a sentence on the verdict while training, if the
        verdict is based on accuracies, or `accuracy`, a sentence on the accuracies, if it is not.
    """
    before = _training_verdict(status, diagnostics)
    figures = _figures(evaluation, status.get("step"), source)
    if before.get("kind") in BAD_VERDICTS or figures is None:
        recorded = _texts(status.get("verdict")).get("accuracy")
        measured = recorded or NOT_MEASURED if figures is None else figures.sentence(weights=weights)
        return {**before, "accuracy": measured}
    longer = ADVICE_SATURATED if before.get("kind") == "saturated" else ADVICE_LONGER
    kind, advice = _judge(figures, weights=weights, longer=longer)
    found = {"kind": kind, "reason": figures.sentence(weights=weights), "advice": advice}
    if (known := _texts(status.get("verdict")).get("training")) is not None:
        found["training"] = known
    if before.get("kind") not in (None, "warming up"):
        details = "; ".join(before[name] for name in ("reason", "advice") if before.get(name))
        found["training"] = f"while training: {before['kind']}: {details}"
    return found


def outcome_of(folder: RunFolder) -> dict[str, str]:
    """Return the verdict on the run in a folder, as far as its files can be read."""
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
    """Accuracy of a baseline, and how far the trained network is above it, in percentage points."""

    percent: float
    points: float
    low: float
    high: float

    def __str__(self) -> str:
        between = f"95% interval {self.low:+.1f} to {self.high:+.1f}"
        return f"{self.percent:.1f}% ({self.points:+.1f} points, {between})"


@dataclass(frozen=True)
class _Figures:
    """Accuracies that a verdict is based on, from one kNN record."""

    percent: float
    images: int
    brief: bool
    pixels: _Gain
    start: _Gain
    colors: _Gain | None

    @classmethod
    def of(cls, record: Record, *, brief: bool) -> _Figures | None:
        """Read the accuracies of a record; None if some are missing."""
        percent, images = _table(record.get("percent")).get("trained"), record.get("images")
        pixels, start = _gain(record, "pixels"), _gain(record, "untrained")
        if not is_number(percent) or not isinstance(images, int) or pixels is None or start is None:
            return None
        return cls(percent, images, brief, pixels, start, _gain(record, "colors"))

    def sentence(self, *, weights: bool) -> str:
        """Compare the trained network with its baselines in a sentence."""
        start = "the weights it began from" if weights else "the untrained network"
        text = (
            f"kNN is right on {self.percent:.1f}% of {self.images:,} test images, where raw pixels have "
            f"{self.pixels} and {start} {'have' if weights else 'has'} {self.start}"
        )
        if self.colors is not None and self.colors.low <= 0 < self.pixels.low:
            text += f"; it is no better than color statistics, which have {self.colors}"
        return text


def _judge(figures: _Figures, *, weights: bool, longer: str) -> tuple[str, str]:
    """Return the kind of verdict and the advice; `longer` is the advice on more steps."""
    pixels, start = figures.pixels, figures.start
    unchanged = "use the weights as they were, or "
    if start.high < 0:
        return WORSE, unchanged + ADVICE_GENTLER if weights else f"look at the views (frossl views); {longer}"
    if pixels.low <= 0:
        advice = [longer, ADVICE_COMPARE] if weights else [longer, ADVICE_PUBLIC_WEIGHTS, ADVICE_COMPARE]
        return NO_BETTER_THAN_PIXELS, _with_more_images(advice, figures, pixels)
    if start.low <= 0:
        return NO_BETTER_THAN_START, _with_more_images(
            [unchanged + longer if weights else longer], figures, start
        )
    return BETTER, ADVICE_COMPARE


def _with_more_images(advice: list[str], figures: _Figures, gain: _Gain) -> str:
    """Join the advice; if a brief evaluation showed no difference, also suggest one on all images."""
    return "; ".join([*advice, ADVICE_ALL_IMAGES] if figures.brief and gain.low <= 0 <= gain.high else advice)


def _figures(evaluation: Iterable[Record], step: object, source: str) -> _Figures | None:
    """Select the accuracies at the last step on the run's own images: those of the newest full evaluation,
    else those of the brief one. Of several k, the largest up to `LARGEST_K` counts."""
    found = [
        (record, int(match[1]), bool(match[2]))
        for record in evaluation
        if (match := KNN_PROTOCOL.fullmatch(str(record.get("protocol")))) and record.get("step") == step
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
    """Compare the trained network with a row. Runs of version 0.1.0 have no paired interval; it is computed
    from the intervals of both."""
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


def _training_verdict(status: Record, diagnostics: Iterable[Record]) -> dict[str, str]:
    """Return the last verdict that was made without labels, while the run trained."""
    verdict = _texts(status.get("verdict"))
    if verdict.get("kind") in ACCURACY_VERDICTS:
        judged = [record for record in diagnostics if isinstance(record.get("verdict"), str)]
        last = _texts(judged[-1]) if judged else {}
        verdict = {"kind": last.get("verdict", "warming up"), **last}
    return {name: verdict[name] for name in ("kind", "reason", "advice") if name in verdict}


def _is_pair(value: object) -> TypeGuard[Sequence[float]]:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(is_number, value))


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> dict[str, str]:
    return {name: text for name, text in _table(value).items() if isinstance(text, str)}
