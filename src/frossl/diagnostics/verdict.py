"""Verdict on a run: whether it learns, in one word, from the diagnostics recorded so far.

No labels are needed; with labels, forgetting is detected as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Literal

Kind = Literal[
    "warming up", "learning", "saturated", "stalled", "forgetting", "collapsing", "diverging", "not watched"
]

MIN_STEPS = 50
"""Steps before which only bad verdicts are given."""
AGREEING_RECORDS = 3
"""Number of latest records that must agree before a run is called collapsing or forgetting."""
COLLAPSED_SPREAD = 0.05
"""Spread of unit-length projections below which all images are one point. Twelve methods had 0.3 to 1."""
COLLAPSED_RANK = 1.5
"""Effective rank of the projections below which they lie on a line."""
COLLAPSED_RANK_SHARE = 0.1
"""Share of the largest rank so far below which a run has collapsed. DINO falls to 0.16 and still learns."""
DIVERGED_GROWTH = 4.0
"""Growth of the weight norm, relative to the first record, above which a run diverges.

The limit grows with √(1 + step / GROWTH_STEPS), as in a random walk. A usual run reaches 1.3 in 468 steps; at
a hundred times the learning rate, weights pass 4 in seven steps.
"""
GROWTH_STEPS = 1000
"""Steps over which the limit on the weight norm stays about `DIVERGED_GROWTH`."""
SIGNIFICANT_ERRORS = 4.0
"""Standard errors that a change must exceed to count as a trend."""
MIN_RECORDS_FOR_TREND = 6
"""Fewest records in the latest half of the run from which a trend is estimated."""
MIN_STEPS_WITHOUT_CHANGE = 200
"""Fewest steps in the latest half of the run before it is called stalled or saturated."""
SATURATED_SHARE = 0.05
"""Share of the total change of the loss below which its change in the latest half counts as none."""

LOWER_RATE = "try a lower rate (--lr), a tenth of it to begin with"
MORE_VARIANCE = "give the variance term more weight ([objective.options]), a larger batch, or a lower rate"
TRAIN_GENTLER = (
    "try a lower rate (--lr), more frozen layers (--set network.freeze=N) or fewer steps; "
    "`frossl checkpoints RUN` measures those that are kept"
)


@dataclass(frozen=True)
class Verdict:
    """State of a run, the reason for it, and what to try.

    Attributes:
        kind: The state in one or two words.
        reason: The measurement that led to it.
        advice: What to try; empty if there is nothing to do.
        stop: Whether continuing is useless: a run stops here by default.
    """

    kind: Kind
    reason: str
    advice: str = ""
    stop: bool = False

    @property
    def bad(self) -> bool:
        """Whether the run collapses or diverges."""
        return self.kind in ("collapsing", "diverging")

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" + (f"; {self.advice}" if self.advice else "")


NOT_WATCHED = Verdict(
    "not watched",
    "diagnostics.share is 0, so no diagnostics were recorded",
    "give a share of the time, such as diagnostics.share=0.03",
)

DiagnosticRecords = Sequence[Mapping[str, Any]]
"""Records of diagnostics.jsonl, oldest first: `step`, `mean_loss`, `z_rank`, `directions`, …"""

METRIC_NAMES = {
    "mean_loss": "the loss",
    "z_rank": "the rank of the projections",
    "features_rank": "the rank of the features",
    "alignment": "the distance between views",
    "uniformity": "the uniformity of the projections",
}
"""Metrics whose trend shows that a run learns, in order of priority, and their names in a verdict."""


def judge(records: DiagnosticRecords, *, warmup: int = 0, asked: DiagnosticRecords = ()) -> Verdict:
    """Return the verdict on a run from its records so far.

    Args:
        records: Diagnostics, oldest first.
        warmup: Number of steps over which the learning rate rises.
        asked: Records of the online kNN evaluation. `knn_gain` is the accuracy in points above that of the
            network before the first step; `knn_gain_low` and `knn_gain_high` bound its 95% interval.
    """
    if not records:
        return Verdict("warming up", "no diagnostics have been recorded yet")
    if bad := _diverging(records) or _collapsing(records) or _forgetting(asked):
        return bad
    step = records[-1]["step"]
    if step < max(MIN_STEPS, warmup):
        return Verdict("warming up", f"step {step} of the first {max(MIN_STEPS, warmup)}")
    recent = [record for record in records if record["step"] > step / 2]
    if len(recent) < MIN_RECORDS_FOR_TREND:
        return Verdict("warming up", f"{len(recent)} records are too few to tell a trend")
    since, loss = recent[0]["step"], _trend(recent, "mean_loss")
    for name in METRIC_NAMES:
        trend = _trend(recent, name)
        # the loss of some methods rises while they learn: only its fall counts
        if trend is not None and trend.significant and (name != "mean_loss" or trend.after < trend.before):
            return Verdict("learning", _describe(name, trend, recent))
    if loss is None or step - since < MIN_STEPS_WITHOUT_CHANGE:
        return Verdict("learning", f"slowly: no trend is clear since step {since}")
    if not any(trend.significant for name in METRIC_NAMES if (trend := _trend(records, name)) is not None):
        return Verdict(
            "stalled",
            "neither loss nor embeddings have moved since the beginning beyond their noise",
            "try a rate ten times higher (--lr), and look at the views (frossl views)",
        )
    so_far = abs(median(record["mean_loss"] for record in records[:AGREEING_RECORDS]) - loss.after)
    if abs(loss.after - loss.before) + 2 * loss.error < SATURATED_SHARE * so_far:
        share = f"{SATURATED_SHARE:.0%}"
        reason = f"since step {since} the loss has changed by less than {share} of what it had before"
        return Verdict("saturated", reason, "more steps like these will bring little")
    return Verdict("learning", f"slowly: no trend is clear since step {since}")


def _diverging(records: DiagnosticRecords) -> Verdict | None:
    first, last = records[0], records[-1]
    growth = last["weight_norm"] / max(first["weight_norm"], 1e-12)
    if not math.isfinite(last["mean_loss"]):
        return Verdict("diverging", f"the loss is {last['mean_loss']} at step {last['step']}", LOWER_RATE)
    if growth > DIVERGED_GROWTH * math.sqrt(1 + last["step"] / GROWTH_STEPS):
        return Verdict("diverging", f"the weights are {growth:.0f} times as long as at first", LOWER_RATE)
    return None


def _collapsing(records: DiagnosticRecords) -> Verdict | None:
    latest = records[-AGREEING_RECORDS:]
    if len(latest) < AGREEING_RECORDS:
        return None
    spread, rank = (median(record[name] for record in latest) for name in ("z_spread", "z_rank"))
    step, widest = latest[-1]["step"], max(record["z_spread"] for record in records)
    # some networks start near one point: they collapse only if they have spread, or stay there
    settled = widest > 2 * COLLAPSED_SPREAD or step > MIN_STEPS_WITHOUT_CHANGE
    if spread < COLLAPSED_SPREAD and settled:
        reason = f"completely: all images are one point (spread {spread:.2g}, where 1 is even)"
        return Verdict("collapsing", reason, MORE_VARIANCE, stop=True)
    peak = max(record["z_rank"] for record in records)
    if latest[-1]["directions"] >= 4 and rank < max(COLLAPSED_RANK, COLLAPSED_RANK_SHARE * peak):
        reason = f"dimensionally: the projections have rank {rank:.1f} left, of {peak:.0f} at most so far"
        return Verdict("collapsing", reason, MORE_VARIANCE)
    return None


def _forgetting(knn_records: DiagnosticRecords) -> Verdict | None:
    latest = knn_records[-AGREEING_RECORDS:]
    if len(latest) < AGREEING_RECORDS or any(record["knn_gain_high"] >= 0 for record in latest):
        return None
    knn, gain, low, high = (latest[-1][name] for name in ("knn", "knn_gain", "knn_gain_low", "knn_gain_high"))
    reason = (
        f"online kNN is right on {knn:.1f}%, and was on {knn - gain:.1f}% before the first step ({gain:+.1f} "
        f"points, 95% interval {low:+.1f} to {high:+.1f}): below it beyond the error {AGREEING_RECORDS} "
        "times in a row"
    )
    return Verdict("forgetting", reason, TRAIN_GENTLER)


@dataclass(frozen=True)
class _Trend:
    """Least-squares line through a metric: its first and last value, and the standard error of the change."""

    before: float
    after: float
    error: float

    @property
    def significant(self) -> bool:
        """Whether the change exceeds its noise and a thousandth of the level."""
        change = abs(self.after - self.before)
        level = max(abs(self.before), abs(self.after))
        return change > SIGNIFICANT_ERRORS * self.error and change > 1e-3 * level


def _trend(records: DiagnosticRecords, name: str) -> _Trend | None:
    """Fit a line to a metric over the steps; None with fewer than three finite values."""
    finite = [record for record in records if math.isfinite(record.get(name, math.nan))]
    points = [(record["step"], record[name]) for record in finite]
    if len(points) < 3:
        return None
    first, last = points[0][0], points[-1][0]
    center, level = (fmean(values) for values in zip(*points, strict=True))
    width = sum((x - center) ** 2 for x, _ in points)
    slope = sum((x - center) * (y - level) for x, y in points) / width
    left = sum((y - level - slope * (x - center)) ** 2 for x, y in points)
    error = math.sqrt(left / (len(points) - 2) / width) * (last - first)
    return _Trend(level + slope * (first - center), level + slope * (last - center), error)


def _describe(name: str, trend: _Trend, records: DiagnosticRecords) -> str:
    how = "falls" if trend.after < trend.before else "rises"
    since = records[0]["step"]
    return f"{METRIC_NAMES[name]} {how}, from {trend.before:.3g} to {trend.after:.3g} since step {since}"
