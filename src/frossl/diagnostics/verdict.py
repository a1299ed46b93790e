"""Is it learning? One plain word, from what a run has recorded of itself so far. It needs no labels;
where there are some, it notices forgetting, too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Literal

Kind = Literal[
    "warming up", "learning", "saturated", "stalled", "forgetting", "collapsing", "diverging", "not watched"
]

EARLY = 50
"""Steps of which nothing is said yet but that they were bad."""
LATEST = 3
"""Looks that must agree before anything is called bad."""
POINT = 0.05
"""Spread of projections of unit length below which all images are one point. Twelve methods had 0.3 to 1."""
ONE = 1.5
"""Effective rank below which projections are a line."""
FALLEN = 0.1
"""Of the largest rank so far: as little as this is a collapse too. DINO falls to 0.16, and learns."""
GROWN, WALK = 4.0, 1000
"""So many times their first length, within so many steps, weights have been thrown about; later √steps times
that, as a random walk goes. Usual is 1.3 in 468 steps; at a hundred times the rate, more than 4 in seven."""
SURE = 4.0
"""Standard errors of a slope, beyond which it is one."""
FEW = 6
"""Looks in the latest half of the run, at least, to tell a slope."""
LONG = 200
"""Steps in the latest half of the run, at least, to say that nothing happens any more."""
LITTLE = 0.05
"""Of all that the loss has changed so far: as little as this in half of the steps is nothing any more."""

LOWER_RATE = "try a lower rate (--lr), a tenth of it to begin with"
MORE_VARIANCE = (
    "give the term that spreads more weight ([objective.options]), a larger batch, or a lower rate"
)
GENTLER = (
    "try a lower rate (--lr), more frozen layers (--set network.freeze=N) or fewer steps; "
    "`frossl checkpoints RUN` measures those that are kept"
)


@dataclass(frozen=True)
class Verdict:
    """How a run goes, why that is said, and what to try."""

    kind: Kind
    reason: str
    advice: str = ""
    stop: bool = False
    """There is nothing left to learn from: a run stops here by default."""

    @property
    def bad(self) -> bool:
        return self.kind in ("collapsing", "diverging")

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" + (f"; {self.advice}" if self.advice else "")


NOT_WATCHED = Verdict(
    "not watched",
    "diagnostics.share is 0, so nothing was looked at while it trained",
    "give a share of the time, such as diagnostics.share=0.03",
)

Looks = Sequence[Mapping[str, Any]]
"""Records of diagnostics.jsonl, oldest first: `step`, `mean_loss`, `z_rank`, `directions`, …"""

WATCHED = {
    "mean_loss": "the loss",
    "z_rank": "the rank of the projections",
    "features_rank": "the rank of the features",
    "alignment": "the distance between views",
    "uniformity": "the uniformity of the projections",
}


def judge(looks: Looks, *, warmup: int = 0, asked: Looks = ()) -> Verdict:
    """warmup: the steps over which the rate rises. asked: records of online neighbours, with `knn_gain`: how
    far they are above those of the network before the first step."""
    if not looks:
        return Verdict("warming up", "nothing has been looked at yet")
    if bad := _diverging(looks) or _collapsing(looks) or _forgetting(asked):
        return bad
    step = looks[-1]["step"]
    if step < max(EARLY, warmup):
        return Verdict("warming up", f"step {step} of the first {max(EARLY, warmup)}")
    recent = [look for look in looks if look["step"] > step / 2]
    if len(recent) < FEW:
        return Verdict("warming up", f"{len(recent)} looks are too few to tell a direction")
    since, loss = recent[0]["step"], _line(recent, "mean_loss")
    for name in WATCHED:
        line = _line(recent, name)
        # a loss may rise, as some methods' do: what embeddings do then tells more
        if line is not None and line.certain and (name != "mean_loss" or line.after < line.before):
            return Verdict("learning", _told(name, line, recent))
    if loss is None or step - since < LONG:
        return Verdict("learning", f"slowly: no direction is clear since step {since}")
    if not any(line.certain for name in WATCHED if (line := _line(looks, name)) is not None):
        return Verdict(
            "stalled",
            "neither loss nor embeddings have moved since the beginning beyond their noise",
            "try a rate ten times higher (--lr), and look at the views (frossl views)",
        )
    so_far = abs(median(look["mean_loss"] for look in looks[:LATEST]) - loss.after)
    if abs(loss.after - loss.before) + 2 * loss.error < LITTLE * so_far:
        reason = f"since step {since} the loss has changed by less than {LITTLE:.0%} of what it had before"
        return Verdict("saturated", reason, "more steps like these will bring little")
    return Verdict("learning", f"slowly: no direction is clear since step {since}")


def _diverging(looks: Looks) -> Verdict | None:
    first, last = looks[0], looks[-1]
    growth = last["weight_norm"] / max(first["weight_norm"], 1e-12)
    if not math.isfinite(last["mean_loss"]):
        return Verdict("diverging", f"the loss is {last['mean_loss']} at step {last['step']}", LOWER_RATE)
    if growth > GROWN * math.sqrt(1 + last["step"] / WALK):
        return Verdict("diverging", f"the weights are {growth:.0f} times as long as at first", LOWER_RATE)
    return None


def _collapsing(looks: Looks) -> Verdict | None:
    latest = looks[-LATEST:]
    if len(latest) < LATEST:
        return None
    spread, rank = (median(look[name] for look in latest) for name in ("z_spread", "z_rank"))
    step, widest = latest[-1]["step"], max(look["z_spread"] for look in looks)
    if spread < POINT and (widest > 2 * POINT or step > LONG):  # some networks begin near one point
        reason = f"completely: all images are one point (spread {spread:.2g}, where 1 is even)"
        return Verdict("collapsing", reason, MORE_VARIANCE, stop=True)
    peak = max(look["z_rank"] for look in looks)
    if latest[-1]["directions"] >= 4 and rank < max(ONE, FALLEN * peak):
        reason = f"dimensionally: the projections have rank {rank:.1f} left, of {peak:.0f} at most so far"
        return Verdict("collapsing", reason, MORE_VARIANCE)
    return None


def _forgetting(asked: Looks) -> Verdict | None:
    latest = asked[-LATEST:]
    if len(latest) < LATEST or any(record["knn_gain_high"] >= 0 for record in latest):
        return None
    knn, gain, low, high = (latest[-1][name] for name in ("knn", "knn_gain", "knn_gain_low", "knn_gain_high"))
    reason = (
        f"online kNN is right on {knn:.1f}%, and was on {knn - gain:.1f}% before the first step ({gain:+.1f} "
        f"points, 95% interval {low:+.1f} to {high:+.1f}): below it beyond the error {LATEST} times in a row"
    )
    return Verdict("forgetting", reason, GENTLER)


@dataclass(frozen=True)
class _Line:
    """Through a number of several looks: from where to where it leads, and the error of that difference."""

    before: float
    after: float
    error: float

    @property
    def certain(self) -> bool:
        change = abs(self.after - self.before)
        return change > SURE * self.error and change > 1e-3 * max(abs(self.before), abs(self.after))


def _line(looks: Looks, name: str) -> _Line | None:
    """By least squares over the steps; None where there are too few numbers."""
    points = [(look["step"], look[name]) for look in looks if math.isfinite(look.get(name, math.nan))]
    if len(points) < 3:
        return None
    first, last = points[0][0], points[-1][0]
    center, level = (fmean(values) for values in zip(*points, strict=True))
    width = sum((x - center) ** 2 for x, _ in points)
    slope = sum((x - center) * (y - level) for x, y in points) / width
    left = sum((y - level - slope * (x - center)) ** 2 for x, y in points)
    error = math.sqrt(left / (len(points) - 2) / width) * (last - first)
    return _Line(level + slope * (first - center), level + slope * (last - center), error)


def _told(name: str, line: _Line, looks: Looks) -> str:
    how = "falls" if line.after < line.before else "rises"
    return f"{WATCHED[name]} {how}, from {line.before:.3g} to {line.after:.3g} since step {looks[0]['step']}"
