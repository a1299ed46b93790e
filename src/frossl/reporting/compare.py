"""Comparison of runs: accuracy with its standard error, epochs and time to a target, cost."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import pairwise
from operator import getitem
from pathlib import Path
from typing import Any

from frossl.config import Config, steps_per_epoch
from frossl.errors import InputError
from frossl.intervals import Z95, wilson
from frossl.runs import EvaluationRecord, RunFolder
from frossl.runs.records import newest_evaluations
from frossl.text import method_title

SEPARATED = 2.0
"""Standard errors beyond which a difference counts as one."""
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Two-sided 95% quantiles of Student's t by degrees of freedom (seeds minus one); 2 beyond these."""


@dataclass(frozen=True)
class Point:
    """Online accuracy, with the step, epoch and seconds at which it was measured."""

    step: int
    epoch: float
    seconds: float
    percent: float


@dataclass(frozen=True)
class RunResult:
    """Figures of one run, read from its folder."""

    name: str
    path: Path
    arm: str
    """Key that is equal for runs that differ only in their seed."""
    seed: int
    seconds: float
    step_seconds: float | None
    """Median over the metrics records; None if they have no speed."""
    memory_gb: float | None
    """Peak memory of the process."""
    online: tuple[Point, ...]
    percent: float
    error: float
    """Standard error of `percent`, from its 95% interval."""
    protocol: str


@dataclass(frozen=True)
class Arm:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[RunResult, ...]

    @property
    def percent(self) -> float:
        """Mean accuracy over the seeds."""
        return statistics.fmean(run.percent for run in self.runs)

    @property
    def error(self) -> float:
        """Standard error of the mean accuracy.

        With several seeds it is the error between seeds, widened for few seeds (Student's t), and never less
        than the counting error of the test images; with one seed it is the counting error.
        """
        counting = math.sqrt(sum(run.error**2 for run in self.runs)) / len(self.runs)
        if len(self.runs) < 2:
            return counting
        between = statistics.stdev(run.percent for run in self.runs) / math.sqrt(len(self.runs))
        return max(between * T95.get(len(self.runs) - 1, SEPARATED) / SEPARATED, counting)

    def reached(self, target: float) -> dict[str, float] | None:
        """Return the mean epochs and seconds until online accuracy first reached the target.

        Args:
            target: Percent of online accuracy.

        Returns:
            A dict with `epochs` and `seconds`, or None if a run of the arm never reached the target.
        """
        firsts = [next((p for p in run.online if p.percent >= target), None) for run in self.runs]
        if None in firsts:
            return None
        found = [point for point in firsts if point is not None]
        return {
            "epochs": round(statistics.fmean(point.epoch for point in found), 2),
            "seconds": round(statistics.fmean(point.seconds for point in found), 1),
        }


@dataclass(frozen=True)
class Pair:
    """Difference in accuracy between two arms, with its standard error."""

    better: str
    other: str
    difference: float
    error: float

    @property
    def separated(self) -> bool:
        """Whether the difference is more than twice its standard error."""
        return self.difference > SEPARATED * self.error


@dataclass(frozen=True)
class RunComparison:
    """Arms, best first. The order alone is no ranking: `pairs` says which differences are separated."""

    arms: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    target: float
    """Percent of online accuracy for which epochs and seconds are reported."""
    protocol: str

    def verdict(self) -> str:
        """Return one sentence: which arm is ahead, or that the differences are within the error."""
        if len(self.arms) == 1:
            return f"{self.arms[0].name} alone: there is nothing to compare"
        first = [pair for pair in self.pairs if pair.better == self.arms[0].name]
        level = [pair.other for pair in first if not pair.separated]
        if not level:
            return f"{self.arms[0].name} is ahead of all others by more than twice the error"
        if len(level) == len(first) and not any(pair.separated for pair in self.pairs):
            return "no ranking: no difference is more than twice its error; give more seeds or test images"
        names = ", ".join([self.arms[0].name, *level])
        return f"no first place: {names} differ by less than twice the error"

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain data, as `frossl compare --json` prints it."""
        return {
            "protocol": self.protocol,
            "target": self.target,
            "verdict": self.verdict(),
            "arms": [
                {
                    "name": arm.name,
                    "runs": [str(run.path) for run in arm.runs],
                    "seeds": [run.seed for run in arm.runs],
                    "percent": round(arm.percent, 2),
                    "error": round(arm.error, 2),
                    "reached": arm.reached(self.target),
                    "step_ms": _mean([run.step_seconds and 1000 * run.step_seconds for run in arm.runs]),
                    "memory_gb": _mean([run.memory_gb for run in arm.runs]),
                    "online": [[vars(point) for point in run.online] for run in arm.runs],
                    "minutes": round(statistics.fmean(run.seconds for run in arm.runs) / 60, 2),
                }
                for arm in self.arms
            ],
            "pairs": [
                {
                    "better": pair.better,
                    "other": pair.other,
                    "difference": round(pair.difference, 2),
                    "error": round(pair.error, 2),
                    "separated": pair.separated,
                }
                for pair in self.pairs
            ],
        }


def compare_runs(runs: Sequence[str | Path], *, target: float | None = None) -> RunComparison:
    """Compare runs by the newest protocol that all were evaluated with, else by their online accuracy.

    Args:
        runs: Run folders; runs that differ only in their seed are grouped into one arm.
        target: Percent of online accuracy for which epochs and seconds are reported; if None, nine tenths of
            the lowest final online accuracy.

    Returns:
        The arms, best first, and the differences between them.

    Raises:
        InputError: If a run is given twice, or the runs have no accuracy in common.
    """
    if len({Path(run).resolve() for run in runs}) < len(runs):
        raise InputError("a run is given twice; name each once")
    folders = [RunFolder.open(run) for run in runs]
    key = _common_protocol(folders)
    results = [_result(folder, key) for folder in folders]
    groups: dict[str, list[RunResult]] = {}
    for run in results:
        groups.setdefault(run.arm, []).append(run)
    named = [Arm(_name(group), tuple(group)) for group in groups.values()]
    arms = sorted(named, key=lambda arm: -arm.percent)
    if len({arm.name for arm in arms}) < len(arms):
        arms = [Arm(str(arm.runs[0].path), arm.runs) for arm in arms]
    pairs = [
        Pair(a.name, b.name, a.percent - b.percent, math.hypot(a.error, b.error))
        for i, a in enumerate(arms)
        for b in arms[i + 1 :]
    ]
    if target is None:
        finals = [run.online[-1].percent for run in results if run.online]
        target = round(0.9 * min(finals), 1) if finals else 0.0
    return RunComparison(tuple(arms), tuple(pairs), target, key[0])


Key = tuple[str, str]
"""Protocol with the name of the images, and kind of split: only equal ones can be compared."""


def _common_protocol(folders: Sequence[RunFolder]) -> Key:
    """Return the newest key that every run was evaluated with after its end, else that of online accuracy."""
    known = [_final(folder) for folder in folders]
    common = [key for key in known[0] if all(key in keys for keys in known)]
    if common:
        return common[-1]
    online = {_online_key(folder) for folder in folders}
    if len(online) == 1 and (key := online.pop()) is not None:
        return key
    missing = [str(folder.path) for folder, keys in zip(folders, known, strict=True) if not keys]
    other = "other protocols, or other splits of the images"
    raise InputError(
        f"these runs have no accuracy in common ({', '.join(missing) or other}); "
        "measure each of them: frossl knn RUN"
    )


def _final(folder: RunFolder) -> dict[Key, EvaluationRecord]:
    """Return the newest evaluations of the final step by key, oldest first, without earlier checkpoints."""
    step, found = folder.read_status().step, dict[Key, EvaluationRecord]()
    records = [r for r in folder.evaluation if "trained" in r.percent and "trained" in r.interval]
    for record in newest_evaluations(records, step=step, by_split=True):
        found.pop(_key(record), None)  # records of 0.1.0 name no split, but may have the same one
        found[_key(record)] = record
    return found


HASH_SPLIT = "hash"
GROUPED_HASH_SPLIT = "hash, copies together"
"""Kinds of split, as evaluation records name them; the second keeps copies of an image in one part."""
HASH_NOTE_OF_0_1 = "held out by a hash"
"""Text in the note of a record of frossl 0.1.0 whose test images were split off by a hash."""


def _key(record: EvaluationRecord) -> Key:
    """Return the key of an evaluation record.

    Records of 0.1.0 name no split: it was the data's own test part, or the hash that ignored copies, which
    equals today's split if there are none.
    """
    data = f" on {record.data}" if record.data else ""
    old = HASH_SPLIT if HASH_NOTE_OF_0_1 in record.note else "own test part"
    return f"{record.protocol}{data}", old if record.split is None else record.split


def _online_key(folder: RunFolder) -> Key | None:
    records = [record for record in folder.diagnostics if record.knn is not None]
    if not records:
        return None
    data = Config.read(folder.config_file).data
    kind = GROUPED_HASH_SPLIT if "copies" in records[-1] else HASH_SPLIT
    return "online kNN, the last", f"{kind}: {data.source}, {data.labels}, {data.test}"


def _result(folder: RunFolder, key: Key) -> RunResult:
    config = Config.read(folder.config_file)
    metrics, asked = list(folder.metrics), [r for r in folder.diagnostics if r.knn is not None]
    origin = folder.provenance()
    images = origin["images"]
    batch, per_epoch = min(config.train.batch_size, images), steps_per_epoch(images, config.train.batch_size)
    online = tuple(
        Point(record.step, record.step / per_epoch, record["seconds"], record["knn"]) for record in asked
    )
    if (found := _final(folder).get(key)) is not None:
        percent, (low, high) = found.percent["trained"], found.interval["trained"]
    else:
        percent = online[-1].percent
        low, high = (100 * end for end in wilson(percent / 100, asked[-1]["tested"]))
    speeds = [batch / record.images_per_second for record in metrics if record.images_per_second]
    return RunResult(
        name=folder.path.name,
        path=folder.path,
        arm=_arm(config, origin),
        seed=config.train.seed,
        seconds=folder.training_seconds(),
        step_seconds=statistics.median(speeds) if speeds else None,
        memory_gb=max((r.memory_gb for r in metrics if r.memory_gb is not None), default=None),
        online=online,
        percent=percent,
        error=(high - low) / (2 * Z95),
        protocol=key[0],
    )


IGNORED_SETTINGS = {
    "train.seed": "runs of one arm differ in it",
    "train.loggers": "only reports the run",
    "train.log_every": "only reports the run",
    "train.checkpoint_every": "has no effect on what is learned",
    "train.checkpoint_minutes": "has no effect on what is learned",
    "train.keep_checkpoints": "has no effect on what is learned",
    "train.threads": "changes the order of sums only",
    "data.workers": "decoding gives the same pixels with any number of threads",
    "data.max_bad": "decides whether a run is stopped, not what it learns",
    "diagnostics": "has no effect on what is learned",
}
"""Settings that runs of one arm may differ in, with the reason."""
BUDGET_SETTINGS = ("train.epochs", "train.steps", "train.settlements")
"""Settings that each run with a time budget measures anew; runs of one arm share the budget instead."""


def _arm(config: Config, origin: dict[str, Any]) -> str:
    """Return the key of an arm: settings, images and budget of a run, without its seed and folder."""
    table, budget = asdict(config), _budget(origin) if config.train.steps is not None else None
    if config.objective.digest is not None:  # the same file in another place is the same method
        table["objective"]["method"] = method_title(config.objective.method)
    for name in (*IGNORED_SETTINGS, *(BUDGET_SETTINGS if budget is not None else ())):
        *parents, last = name.split(".")
        reduce(getitem, parents, table).pop(last)
    return json.dumps([table, budget, origin.get("index_digest")], sort_keys=True, default=str)


def _budget(origin: dict[str, Any]) -> str | None:
    """Return the time budget of a run as it was given; 0.1.0 recorded it only in the command line."""
    if "budget" in origin:
        return None if origin["budget"] is None else str(origin["budget"])
    words = str(origin.get("command")).split()
    given = [word.partition("=")[2] for word in words if word.startswith("--budget=")]
    given += [after for word, after in pairwise(words) if word == "--budget"]
    return given[-1] if given else None


def _name(group: Sequence[RunResult]) -> str:
    """Return the name of an arm: that of its only run, or the common prefix of several."""
    names = [run.name for run in group]
    if len(names) == 1:
        return names[0]
    common = names[0]
    while not all(name.startswith(common) for name in names):
        common = common[:-1]
    return common.rstrip("-_. ") or names[0]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 2) if known else None
