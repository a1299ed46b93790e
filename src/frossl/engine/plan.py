"""Plan a run: estimate its time and memory, and turn a time budget into steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import frossl.engine as engine
from frossl.augment import Transform
from frossl.config import Config, steps_per_epoch
from frossl.data import Dataset
from frossl.engine.budget import Budget, Pacer
from frossl.errors import InputError
from frossl.methods import Method
from frossl.text import gigabytes, method_title

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TIMING_SECONDS = 3.0
"""Least seconds of timed steps for a plan or a budget."""
SHOWN_SECONDS = 1.0
"""Seconds of timed steps for a run without a budget, which are part of its start and only shown."""
TIMING_SHARE, MAX_TIMING_SECONDS = 0.06, 40.0
"""Share of a budget that is spent on timing, and its maximum in seconds."""
CHOICE_SHARE = 0.5
"""Time for choosing each setting, relative to the time for timing."""
BUDGET_MARGIN = 1.2
"""Factor on the smallest budget named in an error, as the next start may be slower."""
MIN_TIMED_STEPS = 300
"""Number of steps from which on a run without a budget is timed."""


FinishSeconds = Callable[[int, int, float, float], float]
"""Seconds for evaluation and report, from images, classes, seconds per image and training seconds."""


@dataclass(frozen=True)
class Plan:
    """Plan of a run: its settled configuration, with estimated time and memory."""

    config: Config
    """Settled configuration, as written to config.toml."""
    images: int
    test_images: int
    """Images of the data set's own test split; 0 if it has none."""
    classes: int
    """Number of classes; 0 without labels."""
    parameters: int
    """Number of parameters of the encoder."""
    batch_size: int
    steps_per_epoch: int
    steps: int
    processes: int
    memory: engine.MemoryEstimate
    free_memory: int
    """Free memory in bytes."""
    timing: engine.StepTiming | None = None
    """Measured step time; None if the run is too short to be timed."""
    finish: float = 0.0
    """Estimated seconds for evaluation and report."""
    speedups: engine.Speedups = field(default_factory=lambda: engine.Speedups())
    """Speedups by which precision and memory format were chosen."""

    @property
    def seconds(self) -> float | None:
        """Estimated seconds from the first step to the report."""
        if self.timing is None:
            return None
        return self.steps * self.timing.step_seconds + self.finish

    @property
    def at_once(self) -> int:
        """Number of images that a process takes through the networks at once."""
        share = -(-self.batch_size // self.processes)
        return min(share, self.config.train.micro_batch_size or share)

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of all processes on this machine, in bytes."""
        return (self.config.train.devices or 1) * self.memory.of(self.at_once)

    def pacer(self, budget: Budget | None) -> Pacer | None:
        """Return the pacer of the run; None if no budget has set its number of steps."""
        if budget is None or self.timing is None or self.config.train.steps is None:
            return None
        most = self.steps if budget.only_shortens else None
        return Pacer(budget, step_seconds=self.timing.step_seconds, finish_seconds=self.finish, most=most)

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        config, train, optim, network = self.config, self.config.train, self.config.optim, self.config.network
        sizes = " + ".join(f"{spec.count} × {spec.size} px" for spec in config.views)
        tested = f", tested on {self.test_images:,} others" if self.test_images else ""
        labels = f"{self.classes} classes{tested}" if self.classes else "no labels"
        threads = f", {_counted(train.threads or 1, 'thread')}" if train.device == "cpu" else ""
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        epochs = self.steps / self.steps_per_epoch
        small = f", {self.at_once} at once" if self.at_once < self.batch_size // self.processes else ""
        stages = f", {network.stages} stages" if network.stages else ""
        rows = {
            "images": f"{self.images:,} images of {config.data.size} px from {config.data.source}; {labels}",
            "views": f"{sizes}; the encoder reads images at {config.data.eval_size} px",
            "network": f"{method_title(config.objective.method)}, {network.backbone} "
            f"(width {network.width:g}, stem {network.stem}{stages}, "
            f"{self.parameters / 1e6:.2f} M parameters)",
            "machine": f"{train.device}, {train.precision}{threads}{processes}{self._faster()}",
            "steps": f"{epochs:.3g} epochs of {self.steps_per_epoch} steps, batch {self.batch_size}{small}; "
            f"{optim.optimizer}, rate {optim.base_lr:g} per {optim.lr_batch} images = "
            f"{optim.lr(self.batch_size):g}",
            "time": self._time(),
            "memory": f"about {gigabytes(self.memory_bytes)} of the {gigabytes(self.free_memory)} that are "
            f"free ({'by formula' if train.device == 'cuda' else 'counted on small batches'})",
        }
        return [f"{name:8}{text}" for name, text in rows.items() if text]

    def _faster(self) -> str:
        gain = self.speedups.bfloat16
        chosen = gain is not None and self.config.train.precision == "bf16-mixed"
        return f"; bf16: {gain:.1f} × as fast as float32 here" if chosen else ""

    def _time(self) -> str:
        if self.timing is None or self.seconds is None:
            return ""
        told = f"about {in_words(self.seconds)}, {self.timing.step_seconds * 1e3:.0f} ms a step"
        return f"{told}; evaluation and report take {in_words(self.finish)} of it"

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
            "channels_last": self.config.train.channels_last,
            "threads": self.config.train.threads,
            "speedups": asdict(self.speedups),
            "processes": self.processes,
            "epochs": round(self.steps / self.steps_per_epoch, 3),
            "steps": self.steps,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "step_seconds": None if self.timing is None else round(self.timing.step_seconds, 4),
            "memory_bytes": self.memory_bytes,
            "free_memory_bytes": self.free_memory,
        }


def make_plan(
    config: Config,
    data: Dataset,
    *,
    method: Method | None = None,
    fabric: Fabric | None = None,
    transform: Transform | None = None,
    budget: Budget | None = None,
    measure: bool = False,
    undecided: Collection[str] = (),
    finish_seconds: FinishSeconds = lambda images, classes, image_seconds, training: 0.0,
) -> Plan:
    """Plan a run; with a budget, choose the number of steps so that it ends within it.

    Every process takes part, and all return the plan of the main process.

    Args:
        config: Settled configuration.
        data: Its images.
        method: Networks at the start, left unchanged; built here if None.
        fabric: The processes; one if None.
        transform: The user's function that makes views, if the run has one.
        budget: Time that everything may take.
        measure: Time a few steps however short the run is.
        undecided: Settings to choose by timing, if steps are timed at all: `precision`, `channels_last`.
        finish_seconds: Estimate of the time for evaluation and report.
    """
    images, train = len(data.train.source), config.train
    processes = (train.devices or 1) * (train.num_nodes or 1)
    batch = min(train.batch_size, images)
    per_epoch = steps_per_epoch(images, train.batch_size)
    method = method or engine.build_method(config)
    plan = Plan(
        config=config,
        images=images,
        test_images=len(data.test.source) if data.test is not None else 0,
        classes=len(data.train.labels.names) if data.train.labels is not None else 0,
        parameters=sum(p.numel() for p in method.encoder.parameters()),
        batch_size=batch,
        steps_per_epoch=per_epoch,
        steps=train.length(per_epoch),
        processes=processes,
        memory=engine.estimate_memory(config, method, batch),
        free_memory=engine.free_memory(train.device or "cpu"),
    )
    check_memory(plan)
    if not (budget or measure or (plan.steps >= MIN_TIMED_STEPS and engine.max_steps() is None)):
        return plan
    seconds = TIMING_SECONDS
    if budget is not None:
        seconds = min(max(seconds, TIMING_SHARE * budget.left), MAX_TIMING_SECONDS)
    if undecided and processes == 1 and train.device == "cpu":
        config, speedups = engine.choose_fastest(
            config, data, method, transform, names=undecided, seconds=CHOICE_SHARE * seconds
        )
        plan, fabric = replace(plan, config=config, speedups=speedups), None
    if budget is None and not measure:
        seconds = SHOWN_SECONDS
    timed = engine.time_steps(config, data, fabric, transform, seconds=seconds, method=method)
    timing, gone = engine.all_gather_object((timed, 0.0 if budget is None else budget.gone))[0]
    plan = replace(plan, timing=timing)
    finish = partial(finish_seconds, plan.images, plan.classes, timing.image_seconds)
    if budget is not None:
        plan = _within(plan, budget, gone, finish)
    plan = replace(plan, finish=finish(plan.steps * timing.step_seconds))
    return engine.all_gather_object(plan)[0]


def check_memory(plan: Plan) -> None:
    """Raise an error if a batch does not fit in memory, naming the micro-batch size that does."""
    if plan.memory_bytes <= plan.free_memory:
        return
    fits = plan.memory.images_within(plan.free_memory // (plan.config.train.devices or 1))
    needed = f"{plan.at_once} images at once take about {gigabytes(plan.memory_bytes)}"
    if fits < 2:
        hint = "choose a smaller backbone, width or view size"
    else:
        power = 1 << (fits.bit_length() - 1)
        hint = f"give --micro-batch-size {power} (the same gradient, in more time)"
    raise InputError(f"{needed}, and {gigabytes(plan.free_memory)} are free; {hint}")


def _within(plan: Plan, budget: Budget, gone: float, finish: Callable[[float], float]) -> Plan:
    """Set the number of steps so that training, evaluation and report end within the budget."""
    assert plan.timing is not None
    seconds, step = budget.seconds, plan.timing.step_seconds
    left = seconds - gone
    for _ in range(3):  # what comes after depends on how long the training was
        left = seconds - gone - finish(max(left, step))
    steps = int(left / step)
    if steps < 1:
        least = math.ceil(BUDGET_MARGIN * (gone + step + finish(step)))
        raise InputError(
            f"a budget of {seconds:g} s leaves no time for a step: what comes before and after "
            f"the training takes longer; give at least {least}s"
        )
    if budget.only_shortens:
        steps = min(steps, plan.steps)
    epochs = -(-steps // plan.steps_per_epoch)
    train = replace(plan.config.train, epochs=epochs, steps=steps, settlements=())
    config = replace(plan.config, train=train)
    return replace(plan, config=config, steps=steps)


def in_words(seconds: float) -> str:
    """Format a duration as `40 s`, `12 min`, `3.5 h` or `2.1 days`."""
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.{0 if seconds / unit >= 10 or unit == 1 else 1}f} {name}"
    return f"{seconds / 86400:.1f} days"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"
