"""Verdict on a run, from its diagnostics and from the evaluations at its end and after it. No torch."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from frossl.errors import InputError
from frossl.intervals import unpaired_interval
from frossl.runs.folder import RunFolder
from frossl.runs.json_lines import TEXT
from frossl.runs.records import DiagnosticRecord, EvaluationRecord, Status, newest_evaluations

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


def outcome(
    status: Status | None,
    diagnostics: Iterable[DiagnosticRecord],
    evaluation: Iterable[EvaluationRecord],
    *,
    source: str,
    weights: bool,
) -> dict[str, str]:
    """Return the verdict on a run.

    It depends only on the records of the run folder, so finishing a run again gives the same verdict.

    Args:
        status: Content of status.json; None if it cannot be read.
        diagnostics: Records of diagnostics.jsonl.
        evaluation: Records of evaluation.jsonl.
        source: Name of the data that the run was trained on.
        weights: Whether the run started from a file of weights.

    Returns:
        `kind`, `reason` and `advice`; also `training`, a sentence on the verdict while training, if the
        verdict is based on accuracies, or `accuracy`, a sentence on the accuracies, if it is not.
    """
    stored = {} if status is None else status.verdict
    before = _training_verdict(stored, diagnostics)
    figures = None if status is None else _figures(evaluation, status.step, source)
    if before.get("kind") in BAD_VERDICTS or figures is None:
        recorded = stored.get("accuracy")
        measured = recorded or NOT_MEASURED if figures is None else figures.sentence(weights=weights)
        return {**before, "accuracy": measured}
    longer = ADVICE_SATURATED if before.get("kind") == "saturated" else ADVICE_LONGER
    kind, advice = _judge(figures, weights=weights, longer=longer)
    found = {"kind": kind, "reason": figures.sentence(weights=weights), "advice": advice}
    if "training" in stored:
        found["training"] = stored["training"]
    if before.get("kind") not in (None, "warming up"):
        details = "; ".join(before[name] for name in ("reason", "advice") if before.get(name))
        found["training"] = f"while training: {before['kind']}: {details}"
    return found


def outcome_of(folder: RunFolder) -> dict[str, str]:
    """Return the verdict on the run in a folder, as far as its files can be read."""
    try:
        status = folder.read_status()
    except (OSError, InputError):
        status = None
    try:
        config = tomllib.loads(folder.config_file.read_text(**TEXT))
    except (OSError, tomllib.TOMLDecodeError):
        config = {}
    return outcome(
        status,
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
    def of(cls, record: EvaluationRecord, *, brief: bool) -> _Figures | None:
        """Read the accuracies of a record; None if some are missing."""
        percent, images = record.percent.get("trained"), record.images
        pixels, start = _gain(record, "pixels"), _gain(record, "untrained")
        if percent is None or images is None or pixels is None or start is None:
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


def headline_knn(records: Iterable[EvaluationRecord]) -> EvaluationRecord | None:
    """Return the kNN record that stands for a run: a full evaluation before a brief one, and of several k the
    largest up to `LARGEST_K`, else the smallest."""
    found = [(record, match) for record in records if (match := KNN_PROTOCOL.fullmatch(record.protocol))]

    def priority(one: tuple[EvaluationRecord, re.Match[str]]) -> tuple[bool, bool, int]:
        k = int(one[1][1])
        return not one[1][2], k <= LARGEST_K, k if k <= LARGEST_K else -k

    return max(found, key=priority)[0] if found else None


def _figures(evaluation: Iterable[EvaluationRecord], step: int, source: str) -> _Figures | None:
    """Select the accuracies at the last step on the run's own images: those of the newest full evaluation,
    else those of the brief one. Of several k, the largest up to `LARGEST_K` counts."""
    found = [
        (record, int(match[1]), bool(match[2]))
        for record in newest_evaluations(evaluation, step=step, by_split=True)
        if (match := KNN_PROTOCOL.fullmatch(record.protocol))
    ]
    own = {record.data for record, _, brief in found if brief} or {source}
    best: tuple[tuple[bool, int], _Figures] | None = None
    for record, k, brief in found:
        figures = _Figures.of(record, brief=brief)
        if figures is None or k > LARGEST_K or record.data not in own:
            continue
        if best is None or (not brief, k) >= best[0]:
            best = (not brief, k), figures
    return None if best is None else best[1]


def _gain(record: EvaluationRecord, row: str) -> _Gain | None:
    """Compare the trained network with a row. Runs of version 0.1.0 have no paired interval; it is computed
    from the intervals of both."""
    trained, other = record.percent.get("trained"), record.percent.get(row)
    if trained is None or other is None:
        return None
    if (between := record.difference_interval.get(row)) is not None:
        return _Gain(other, trained - other, *between)
    of_trained, of_other = record.interval.get("trained"), record.interval.get(row)
    if of_trained is None or of_other is None:
        return None
    return _Gain(other, trained - other, *unpaired_interval(trained, of_trained, other, of_other))


def _training_verdict(stored: dict[str, str], diagnostics: Iterable[DiagnosticRecord]) -> dict[str, str]:
    """Return the last verdict that was made without labels, while the run trained."""
    verdict = stored
    if verdict.get("kind") in ACCURACY_VERDICTS:
        judged = [record for record in diagnostics if record.verdict is not None]
        verdict = {"kind": "warming up"}
        if judged:
            texts = {name: text for name, text in judged[-1].items() if isinstance(text, str)}
            verdict = {**texts, "kind": texts["verdict"]}
    return {name: verdict[name] for name in ("kind", "reason", "advice") if name in verdict}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
