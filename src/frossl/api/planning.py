"""What a run is about to do, and what it will cost; a budget of time turned into steps."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

import frossl.engine as engine
from frossl.api.closing import closing_seconds
from frossl.augment import Transform
from frossl.config import Config
from frossl.data import Dataset
from frossl.errors import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TRIAL_SECONDS = 3.0
"""That a run tries itself out for, where only its time left is to be told."""
TRIAL_SHARE, LONGEST_TRIAL = 0.06, 40.0
"""Of a budget, and in seconds."""
SPARE = 1.2
"""Times what was just measured is told to those who gave too little: the next time it may take longer."""
WORTH_A_TRIAL = 300
"""Steps; shorter runs are over soon."""


LONGEST_BUDGET = 10 * 365 * 86400.0
"""Seconds; whoever asks for more has mistaken the unit."""


@dataclass(frozen=True)
class Budget:
    """The seconds that a run may take, since a time of time.monotonic()."""

    seconds: float
    began: float

    @classmethod
    def of(cls, given: str | float | Budget, began: float) -> Budget:
        return given if isinstance(given, Budget) else cls(budget_seconds(given), began)

    @property
    def gone(self) -> float:
        """Seconds that have passed."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.gone


@dataclass(frozen=True)
class Plan:
    """A run before its first step."""

    config: Config
    """Settled: what config.toml will hold."""
    images: int
    test_images: int
    """Of a part of their own; 0 for none."""
    classes: int
    """0 where there are no labels."""
    parameters: int
    """Of the encoder."""
    batch_size: int
    steps_per_epoch: int
    steps: int
    processes: int
    memory: engine.Memory
    free_memory: int
    """Bytes."""
    trial: engine.Trial | None
    """None where the run is too short to be tried out."""

    @property
    def closing(self) -> float:
        """Seconds for evaluation and report."""
        if self.trial is None:
            return 0.0
        return _closing(self, self.steps * self.trial.step_seconds)

    @property
    def seconds(self) -> float | None:
        """From the first step to the report."""
        if self.trial is None:
            return None
        return self.steps * self.trial.step_seconds + self.closing

    @property
    def at_once(self) -> int:
        """Images that go through the networks of a process together."""
        share = -(-self.batch_size // self.processes)
        return min(share, self.config.train.micro_batch_size or share)

    @property
    def memory_bytes(self) -> int:
        """Of all processes of this machine."""
        return (self.config.train.devices or 1) * self.memory.of(self.at_once)

    def lines(self) -> list[str]:
        """For a person."""
        config, train, optim, network = self.config, self.config.train, self.config.optim, self.config.network
        sizes = " + ".join(f"{spec.count} × {spec.size} px" for spec in config.views)
        tested = f", tested on {self.test_images:,} others" if self.test_images else ""
        labels = f"{self.classes} classes{tested}" if self.classes else "no labels"
        threads = f", {_counted(torch.get_num_threads(), 'thread')}" if train.device == "cpu" else ""
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        epochs = self.steps / self.steps_per_epoch
        small = f", {self.at_once} at once" if self.at_once < self.batch_size // self.processes else ""
        stages = f", {network.stages} stages" if network.stages else ""
        rows = {
            "images": f"{self.images:,} images of {config.data.size} px from {config.data.source}; {labels}",
            "views": sizes,
            "network": f"{config.objective.method}, {network.backbone} (width {network.width:g}, stem "
            f"{network.stem}{stages}, {self.parameters / 1e6:.2f} M parameters)",
            "machine": f"{train.device}, {train.precision}{threads}{processes}",
            "steps": f"{epochs:.3g} epochs of {self.steps_per_epoch} steps, batch {self.batch_size}{small}; "
            f"{optim.optimizer}, rate {optim.base_lr:g} per {optim.lr_batch} images = "
            f"{optim.lr(self.batch_size):g}",
            "time": self._time(),
            "memory": f"about {_gigabytes(self.memory_bytes)} of the {_gigabytes(self.free_memory)} that are "
            f"free ({'by formula' if train.device == 'cuda' else 'counted on small batches'})",
        }
        return [f"{name:8}{text}" for name, text in rows.items() if text]

    def _time(self) -> str:
        if self.trial is None or self.seconds is None:
            return ""
        told = f"about {in_words(self.seconds)}, {self.trial.step_seconds * 1e3:.0f} ms a step"
        return f"{told}; evaluation and report take {in_words(self.closing)} of it"

    def to_json(self) -> dict[str, Any]:
        return {
            "images": self.images,
            "test_images": self.test_images,
            "classes": self.classes,
            "method": self.config.objective.method,
            "backbone": self.config.network.backbone,
            "parameters": self.parameters,
            "views": [[spec.count, spec.size] for spec in self.config.views],
            "batch_size": self.batch_size,
            "images_at_once": self.at_once,
            "lr": self.config.optim.lr(self.batch_size),
            "device": self.config.train.device,
            "precision": self.config.train.precision,
            "processes": self.processes,
            "epochs": round(self.steps / self.steps_per_epoch, 3),
            "steps": self.steps,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "step_seconds": None if self.trial is None else round(self.trial.step_seconds, 4),
            "memory_bytes": self.memory_bytes,
            "free_memory_bytes": self.free_memory,
        }


def make_plan(
    config: Config,
    data: Dataset,
    *,
    fabric: Fabric | None = None,
    transform: Transform | None = None,
    budget: Budget | None = None,
    measure: bool = False,
) -> Plan:
    """The plan of a settled configuration; with a budget, of a run that ends within it.

    measure: make steps that are thrown away, however short the run is. Every process takes part, and all
    have the plan of the first.
    """
    images, train = len(data.train.source), config.train
    processes = (train.devices or 1) * (train.num_nodes or 1)
    batch = min(train.batch_size, images)
    per_epoch = images // batch
    method = engine.build_method(config)
    plan = Plan(
        config=config,
        images=images,
        test_images=len(data.test.source) if data.test is not None else 0,
        classes=len(data.train.labels.names) if data.train.labels is not None else 0,
        parameters=sum(p.numel() for p in method.encoder.parameters()),
        batch_size=batch,
        steps_per_epoch=per_epoch,
        steps=train.steps or train.epochs * per_epoch,
        processes=processes,
        memory=engine.memory_of(config, method, batch),
        free_memory=engine.free_memory(train.device or "cpu"),
        trial=None,
    )
    check_memory(plan)
    if not (budget or measure or (plan.steps >= WORTH_A_TRIAL and engine.max_steps() is None)):
        return plan
    seconds = TRIAL_SECONDS
    if budget is not None:
        seconds = min(max(seconds, TRIAL_SHARE * budget.left), LONGEST_TRIAL)
    tried = engine.try_out(config, data, fabric, transform, seconds=seconds)
    trial, gone = engine.everyones((tried, 0.0 if budget is None else budget.gone))[0]
    plan = replace(plan, trial=trial)
    if budget is not None:
        plan = _within(plan, budget.seconds, gone)
    return engine.everyones(plan)[0]


def check_memory(plan: Plan) -> None:
    """Refuse a batch that memory does not hold, with the micro-batch that it does."""
    if plan.memory_bytes <= plan.free_memory:
        return
    fits = plan.memory.images_within(plan.free_memory // (plan.config.train.devices or 1))
    needed = f"{plan.at_once} images at once take about {_gigabytes(plan.memory_bytes)}"
    if fits < 2:
        hint = "choose a smaller backbone, width or view size"
    else:
        power = 1 << (fits.bit_length() - 1)
        hint = f"give --micro-batch-size {power} (the same gradient, in more time)"
    raise InputError(f"{needed}, and {_gigabytes(plan.free_memory)} are free; {hint}")


def _within(plan: Plan, seconds: float, gone: float) -> Plan:
    """As many steps as end within the time, of which some has gone, with what comes after them."""
    assert plan.trial is not None
    step, left = plan.trial.step_seconds, seconds - gone
    for _ in range(3):  # what comes after depends on how long the training was
        left = seconds - gone - _closing(plan, max(left, step))
    steps = int(left / step)
    if steps < 1:
        least = math.ceil(SPARE * (gone + step + _closing(plan, step)))
        raise InputError(
            f"a budget of {seconds:g} s leaves no time for a step: what comes before and after "
            f"the training takes longer; give at least {least}s"
        )
    epochs = -(-steps // plan.steps_per_epoch)
    config = replace(plan.config, train=replace(plan.config.train, epochs=epochs, steps=steps))
    return replace(plan, config=config, steps=steps)


def _closing(plan: Plan, training: float) -> float:
    assert plan.trial is not None
    return closing_seconds(plan.images, plan.classes, plan.trial.image_seconds, training)


def budget_seconds(budget: str | float) -> float:
    """`90s`, `30m`, `2h`, `1h30m`; a number is seconds."""
    if isinstance(budget, str):
        found = re.fullmatch(
            r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", budget.strip()
        )
        if not found or not any(found.groups()):
            raise InputError(f"a budget of {budget!r} is no time; give such as 90s, 30m, 2h or 1h30m")
        hours, minutes, seconds = (float(text or 0) for text in found.groups())
        budget = 3600 * hours + 60 * minutes + seconds
    if not 0 < budget <= LONGEST_BUDGET:
        raise InputError(
            f"a budget of {budget:g} s is no time to train in; give such as 90s, 30m or 2h, at most ten years"
        )
    return float(budget)


def in_words(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`, `2.1 days`."""
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.{0 if seconds / unit >= 10 or unit == 1 else 1}f} {name}"
    return f"{seconds / 86400:.1f} days"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
