"""Results of evaluations: accuracies of several kinds of features, by one protocol or by several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from frossl.evaluation.difference import Difference
from frossl.evaluation.protocols import EvalProtocol
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
    spec: EvalProtocol
    """The protocol as an object, such as `KNN(k=20)`."""

    @property
    def key(self) -> str:
        """Short name of the protocol, such as `knn20`."""
        return self.spec.key

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


class Evaluations(dict[str, Evaluation]):
    """Evaluations by the keys of their protocols, such as `knn` and `probe10`, in the order of the protocols.

    A key that occurs again is numbered: `finetune`, `finetune-2`.
    """

    @classmethod
    def collect(cls, evaluations: Iterable[Evaluation]) -> Self:
        """Return a mapping of evaluations, whose keys are unique."""
        found = cls()
        for evaluation in evaluations:
            key, number = evaluation.key, 1
            while key in found:
                key = f"{evaluation.key}-{(number := number + 1)}"
            found[key] = evaluation
        return found

    def of(self, protocol: EvalProtocol) -> Evaluation:
        """Return the evaluation by a protocol that is given as an object; a KeyError if there is none."""
        for evaluation in self.values():
            if evaluation.spec == protocol:
                return evaluation
        raise KeyError(protocol)

    def to_json(self) -> dict[str, Any]:
        """Return the evaluations by key, as values that JSON can hold."""
        return {key: evaluation.to_json() for key, evaluation in self.items()}
