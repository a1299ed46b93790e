"""Result of an evaluation: accuracies of several kinds of features by one protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frossl.evaluation.difference import Difference
from frossl.evaluation.split import Score


@dataclass(frozen=True)
class Evaluation:
    """Accuracies of several rows by one protocol.

    A row is a kind of features: those of the images themselves, of the network before and after training, and
    of other encoders.
    """

    protocol: str
    """Name of the protocol with its settings, such as `kNN, k 20`."""
    note: str
    """Origin of the test images."""
    scores: Mapping[str, Score]
    """Scores by row: `pixels`, `colors`, `untrained`, `trained`, and the encoders given as `against`.
    `linear` has no `pixels`, `colors` and `untrained`; `finetune` no `pixels` and `colors`."""

    @property
    def pixels(self) -> Score:
        """Score of raw pixels."""
        return self.scores["pixels"]

    @property
    def untrained(self) -> Score:
        """Score of the network before training."""
        return self.scores["untrained"]

    @property
    def trained(self) -> Score:
        """Score of the trained network."""
        return self.scores["trained"]

    def percents(self) -> dict[str, float]:
        """Return the accuracy of each row in percent, rounded to 2 digits."""
        return {row: round(score.percent, 2) for row, score in self.scores.items()}

    def deviations(self) -> dict[str, float]:
        """Return the standard deviation of each row in percentage points, rounded to 2 digits."""
        return {row: round(score.deviation, 2) for row, score in self.scores.items()}

    def intervals(self) -> dict[str, list[float]]:
        """Return the 95% confidence interval of each row, as [low, high] in percent."""
        return {row: [round(x, 2) for x in score.interval] for row, score in self.scores.items()}

    def differences(self) -> dict[str, Difference]:
        """Return the difference of the trained network to each other row, positive if it is better."""
        others = {row: score for row, score in self.scores.items() if row != "trained"}
        return {row: Difference.between(self.trained, score) for row, score in others.items()}

    def to_json(self) -> dict[str, Any]:
        """Return protocol, accuracies, intervals and differences as values that JSON can hold."""
        differences = self.differences()
        top5 = {row: round(score.top5, 2) for row, score in self.scores.items() if score.top5 is not None}
        return {
            "protocol": self.protocol,
            "note": self.note,
            "images": max(score.images for score in self.scores.values()),
            "percent": self.percents(),
            "deviation": self.deviations(),
            "interval": self.intervals(),
            "difference": {row: round(one.points, 2) for row, one in differences.items()},
            "difference_interval": {
                row: [round(x, 2) for x in one.interval] for row, one in differences.items()
            },
            **({"top5": top5} if top5 else {}),
        }
