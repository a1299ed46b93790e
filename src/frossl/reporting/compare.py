"""Runs beside each other: accuracy over epochs and minutes, cost, and what noise allows to say of it."""

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

from frossl.config import Config
from frossl.errors import InputError
from frossl.intervals import Z95, wilson
from frossl.runs import RunFolder

SEPARATED = 2.0
"""Errors of a difference, beyond which it is one."""
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Errors of a mean that 95% takes, by how many seeds there are besides the first: two, for many."""


@dataclass(frozen=True)
class Point:
    """An online accuracy, where and when it was measured."""

    step: int
    epoch: float
    seconds: float
    percent: float


@dataclass(frozen=True)
class Measured:
    """One run, as its folder tells."""

    name: str
    path: Path
    arm: str
    """What it shares with runs that differ by their seed alone."""
    seed: int
    seconds: float
    step_seconds: float | None
    """Median over the record; None where it is too short."""
    memory_gb: float | None
    """Peak of its process."""
    online: tuple[Point, ...]
    percent: float
    error: float
    """Standard error, from the interval of the figure."""
    protocol: str


@dataclass(frozen=True)
class Arm:
    """Runs that differ by their seed alone."""

    name: str
    runs: tuple[Measured, ...]

    @property
    def percent(self) -> float:
        return statistics.fmean(run.percent for run in self.runs)

    @property
    def error(self) -> float:
        """Of the mean: between seeds where there are several, wider where they are few (Student's t), and
        never less than by counting."""
        counting = math.sqrt(sum(run.error**2 for run in self.runs)) / len(self.runs)
        if len(self.runs) < 2:
            return counting
        between = statistics.stdev(run.percent for run in self.runs) / math.sqrt(len(self.runs))
        return max(between * T95.get(len(self.runs) - 1, SEPARATED) / SEPARATED, counting)

    def reached(self, target: float) -> dict[str, float] | None:
        """Epochs and seconds until online accuracy first reached the target, in the mean over seeds; None if
        a run never did."""
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
    """The difference of two arms, with its standard error."""

    better: str
    other: str
    difference: float
    error: float

    @property
    def separated(self) -> bool:
        return self.difference > SEPARATED * self.error


@dataclass(frozen=True)
class Comparison:
    """Arms, best first. Their order is not a ranking: `pairs` says which differences are."""

    arms: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    target: float
    """Percent of online accuracy whose epochs and seconds are told."""
    protocol: str

    def verdict(self) -> str:
        """Who is ahead of whom, or that nobody can tell."""
        if len(self.arms) == 1:
            return f"{self.arms[0].name} alone: there is nothing to compare"
        first = [pair for pair in self.pairs if pair.better == self.arms[0].name]
        open_ = [pair.other for pair in first if not pair.separated]
        if not open_:
            return f"{self.arms[0].name} is ahead of all others by more than twice the error"
        if len(open_) == len(first) and not any(pair.separated for pair in self.pairs):
            return "no ranking: no difference is more than twice its error; give more seeds or test images"
        level = ", ".join([self.arms[0].name, *open_])
        return f"no first place: {level} differ by less than twice the error"

    def to_json(self) -> dict[str, Any]:
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


def compare_runs(runs: Sequence[str | Path], *, target: float | None = None) -> Comparison:
    """target: percent; nine tenths of the lowest final online accuracy, if not given."""
    if len({Path(run).resolve() for run in runs}) < len(runs):
        raise InputError("a run is given twice; name each once")
    folders = [RunFolder.open(run) for run in runs]
    key = _common_protocol(folders)
    measured = [_measured(folder, key) for folder in folders]
    groups: dict[str, list[Measured]] = {}
    for run in measured:
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
        finals = [run.online[-1].percent for run in measured if run.online]
        target = round(0.9 * min(finals), 1) if finals else 0.0
    return Comparison(tuple(arms), tuple(pairs), target, key[0])


Key = tuple[str, str]
"""What figures must share to be ranked: their protocol with the name of the images, and the kind of split."""


def _common_protocol(folders: Sequence[RunFolder]) -> Key:
    """The newest protocol that every run was measured by, after its end, on one kind of split; else what they
    measured online."""
    known = [{_key(record) for record in _final(folder)} for folder in folders]
    common = set.intersection(*known)
    order = [_key(record) for record in _final(folders[0])]
    if common:
        return max(common, key=lambda key: len(order) - order[::-1].index(key))
    online = {_online_key(folder) for folder in folders}
    if len(online) == 1 and (key := online.pop()) is not None:
        return key
    missing = [str(folder.path) for folder, keys in zip(folders, known, strict=True) if not keys]
    other = "other protocols, or other splits of the images"
    raise InputError(
        f"these runs have no accuracy in common ({', '.join(missing) or other}); "
        "measure each of them: frossl knn RUN"
    )


def _final(folder: RunFolder) -> list[dict[str, Any]]:
    """What was measured at the run's end, not of an earlier checkpoint."""
    step = folder.read_status()["step"]
    return [
        record
        for record in folder.evaluation
        if record["step"] == step
        and "trained" in record["percent"]
        and "trained" in record.get("interval", {})
    ]


HASH, TOGETHER = "hash", "hash, copies together"
OLD_NOTE = "held out by a hash"


def _key(record: dict[str, Any]) -> Key:
    """Records of 0.1.0 name no split: it was the own test part, or the hash that took no notice of copies,
    which is the split of today where there are none."""
    data = f" on {record['data']}" if "data" in record else ""
    old = HASH if OLD_NOTE in str(record.get("note")) else "own test part"
    return f"{record['protocol']}{data}", record.get("split", old)


def _online_key(folder: RunFolder) -> Key | None:
    looks = [look for look in folder.diagnostics if "knn" in look]
    if not looks:
        return None
    data, kind = Config.read(folder.config_file).data, TOGETHER if "copies" in looks[-1] else HASH
    return "online kNN, the last", f"{kind}: {data.source}, {data.labels}, {data.test}"


def _measured(folder: RunFolder, key: Key) -> Measured:
    config, metrics, looks = Config.read(folder.config_file), list(folder.metrics), list(folder.diagnostics)
    origin = folder.provenance()
    images = origin["images"]
    batch = min(config.train.batch_size, images)
    per_epoch = images // batch
    online = tuple(
        Point(look["step"], look["step"] / per_epoch, look["seconds"], look["knn"])
        for look in looks
        if "knn" in look
    )
    found = [record for record in _final(folder) if _key(record) == key]
    if found:
        percent = found[-1]["percent"]["trained"]
        low, high = found[-1]["interval"]["trained"]
    else:
        percent, tested = online[-1].percent, [look["tested"] for look in looks if "knn" in look][-1]
        low, high = (100 * end for end in wilson(percent / 100, tested))
    speeds = [batch / record["images_per_second"] for record in metrics if record.get("images_per_second")]
    return Measured(
        name=folder.path.name,
        path=folder.path,
        arm=_arm(config, origin),
        seed=config.train.seed,
        seconds=max((record["seconds"] for record in (*metrics, *looks) if "seconds" in record), default=0.0),
        step_seconds=statistics.median(speeds) if speeds else None,
        memory_gb=max((record["memory_gb"] for record in metrics if "memory_gb" in record), default=None),
        online=online,
        percent=percent,
        error=(high - low) / (2 * Z95),
        protocol=key[0],
    )


NOT_OF_AN_ARM = {
    "train.seed": "what the runs of one arm differ by",
    "train.loggers": "who else is told",
    "train.log_every": "how often it is told",
    "train.checkpoint_every": "what is kept on the way, not what is learned",
    "train.checkpoint_minutes": "as above",
    "train.keep_checkpoints": "as above",
    "data.workers": "threads that decode, to the same pixels",
    "data.max_bad": "when a run is given up, not what it learns",
    "diagnostics": "looks that change nothing",
}
"""Settings that runs of one arm may differ by, and why."""
SETTLED_BY_A_BUDGET = ("train.epochs", "train.steps")
"""Measured anew by every run that is given a time: the time itself is what such runs share."""


def _arm(config: Config, origin: dict[str, Any]) -> str:
    """What a run shares with those that differ by their seed alone: its settings, images and budget. The run
    folder is no setting."""
    table, budget = asdict(config), _budget(origin) if config.train.steps is not None else None
    for name in (*NOT_OF_AN_ARM, *(SETTLED_BY_A_BUDGET if budget is not None else ())):
        *rooms, last = name.split(".")
        reduce(getitem, rooms, table).pop(last)
    return json.dumps([table, budget, origin.get("index_digest")], sort_keys=True, default=str)


def _budget(origin: dict[str, Any]) -> str | None:
    """The time that a run was given, as it was written; 0.1.0 kept it in the command line only."""
    if "budget" in origin:
        return None if origin["budget"] is None else str(origin["budget"])
    words = str(origin.get("command")).split()
    given = [word.partition("=")[2] for word in words if word.startswith("--budget=")]
    given += [after for word, after in pairwise(words) if word == "--budget"]
    return given[-1] if given else None


def _name(group: Sequence[Measured]) -> str:
    """Of an arm: the one run, or what the names of several begin with."""
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
