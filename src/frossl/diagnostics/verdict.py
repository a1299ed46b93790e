"""Is it learning? One plain word, from what a run has recorded of itself so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev
from typing import Literal

Kind = Literal["warming up", "learning", "saturated", "stalled", "collapsing", "diverging"]

Record = Mapping[str, float]
"""One line of diagnostics.jsonl: `step`, `loss`, `rank`, `spread`, `weight_norm`, …"""

WINDOW = 8
"""Records that are looked at together."""
POINT = 0.05
"""Spread of unit rows below which all images are one point."""
FEW = 0.02
"""Share of the possible directions, below which so few are left that it is a collapse."""
GROWN = 20.0
"""How much longer than at first the weights may be."""


@dataclass(frozen=True)
class Verdict:
    """How a run goes, why that is said, and what to try."""

    kind: Kind
    reason: str
    advice: str = ""
    stop: bool = False
    """There is nothing left to learn from: a run stops here by default."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" + (f"; {self.advice}" if self.advice else "")
