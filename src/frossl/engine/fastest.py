"""Choose precision and memory format by timing training steps on this machine; the answers are cached."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import statistics
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from frossl.augment import Transform
from frossl.config import Config, Precision, Train
from frossl.data import Dataset, spread
from frossl.data.layouts import cache_root
from frossl.engine.build import State, build
from frossl.engine.step import train_step
from frossl.errors import BadStepError
from frossl.machine import has_bfloat16
from frossl.methods import Method
from frossl.runs.folder import write_atomically
from frossl.runs.provenance import cpu_name, version_of
from frossl.types import Batch, isolated_rng

MIN_GAIN = 1.1
"""Speedup from which on a setting is chosen; below it, timing noise would decide."""
WARMUP_ROUNDS, MIN_ROUNDS, MAX_ROUNDS = 1, 3, 9
"""Rounds of one step each: those that are left out, and bounds of those that count."""
PATIENCE, MIN_SECONDS = 4.0, 2.0
"""Steps are not timed if that would take this many times as long as given, or as the second number."""
HOPELESS = 0.67
"""Speedup in the first round below which a setting is given up at once."""
ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""Variables that limit the instructions that torch may use."""


@dataclass(frozen=True)
class Speedups:
    """Settings that were chosen by timing, and how much faster they are than the others."""

    channels_last: float | None = None
    """Speedup of the channels-last memory format over the contiguous one; None if it was not timed."""
    bfloat16: float | None = None
    """Speedup of bfloat16 over float32; None if it was not timed."""


def undecided(train: Train) -> set[str]:
    """Return the settings that are not given, and may be chosen by timing."""
    return {name for name in ("precision", "channels_last") if getattr(train, name) is None}


def choose_fastest(
    config: Config,
    data: Dataset,
    method: Method,
    transform: Transform | None,
    *,
    names: Collection[str],
    seconds: float,
) -> tuple[Config, Speedups]:
    """Return the configuration with the faster precision and memory format, in one process on a CPU.

    Steps of both are timed in turn, with networks that are thrown away. The answer is kept in the user's
    cache, so that repeated runs and runs with other seeds get the same one.

    Args:
        config: Settled configuration.
        data: Its images.
        method: Networks at the start, which are left unchanged.
        transform: The user's function that makes views, if the run has one.
        names: Settings to choose: `precision`, `channels_last`.
        seconds: How long to time each of them.
    """
    found = Speedups()
    if "channels_last" in names:
        gain = _cached_gain(config, data, method, transform, {"channels_last": False}, seconds=seconds)
        if gain is not None:
            config = _with(config, channels_last=gain < MIN_GAIN)
            found = replace(found, channels_last=1 / gain)
    if "precision" in names and has_bfloat16():
        bfloat16: Precision = "bf16-mixed"
        gain = _cached_gain(config, data, method, transform, {"precision": bfloat16}, seconds=seconds)
        if gain is not None:
            config = _with(config, precision=bfloat16) if gain >= MIN_GAIN else config
            found = replace(found, bfloat16=gain)
    return config, found


def _with(config: Config, **train: Any) -> Config:
    return replace(config, train=replace(config.train, **train))


def _cached_gain(
    config: Config,
    data: Dataset,
    method: Method,
    transform: Transform | None,
    changes: Mapping[str, Any],
    *,
    seconds: float,
) -> float | None:
    """Return how many times as fast steps are with changes of `[train]`, from the cache or by timing them.

    None if steps are too slow to be timed.
    """
    name = f"{_key(config, changes)}.json"
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError):
        known = float(json.loads((_cache() / name).read_text(encoding="utf-8"))["gain"])
        if 0 < known < float("inf"):
            return known
    gain = _gain(config, _with(config, **changes), data, method, transform, seconds=seconds)
    if gain is None:
        return None
    text = json.dumps({"gain": round(gain, 3), **_machine(config), "changes": dict(changes)}, indent=2)
    with suppress(OSError, RuntimeError):  # a cache that cannot be written, or no home folder
        _cache().mkdir(parents=True, exist_ok=True)
        write_atomically(_cache() / name, lambda out: out.write(text.encode()))
    return round(gain, 3)


def _cache() -> Path:
    return cache_root() / "speed"


def _key(config: Config, changes: Mapping[str, Any]) -> str:
    """Return a digest of everything that the speed depends on."""
    network = {k: v for k, v in asdict(config.network).items() if k != "weights"}
    train, objective = config.train, config.objective
    step = [train.batch_size, train.micro_batch_size, train.precision, train.channels_last, train.together]
    kinds = [objective.method, objective.digest, config.transform, train.view_kernel, config.optim.optimizer]
    views = [asdict(view) for view in config.views]
    everything = [_machine(config), network, views, step, kinds, config.data.size, dict(changes)]
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:32]


def _machine(config: Config) -> dict[str, Any]:
    versions = {name: version_of(name) for name in ("frossl", "torch", "timm")}
    limits = {name: os.environ[name] for name in ISA_VARIABLES if name in os.environ}
    return {"cpu": cpu_name(), "threads": config.train.threads, **versions, **limits}


def _gain(
    before: Config,
    after: Config,
    data: Dataset,
    method: Method,
    transform: Transform | None,
    *,
    seconds: float,
) -> float | None:
    """Return the median over rounds of the step time with `before`, divided by that with `after`.

    None if the rounds that count would take more than `PATIENCE` times as long as they may.
    """
    ratios: list[float] = []
    with isolated_rng(), suppress(BadStepError):  # not finite: the training itself reports it
        copies = [copy.deepcopy(method) for _ in range(2)]
        states = [
            build(config, data, None, transform, method=networks)
            for config, networks in zip((before, after), copies, strict=True)
        ]
        loader = states[0].loader
        batch = loader.read(spread(len(loader.source), loader.batch_size))
        began = time.perf_counter()
        for number in range(WARMUP_ROUNDS + MAX_ROUNDS):
            first, second = (_step_seconds(state, batch) for state in states)
            if number < WARMUP_ROUNDS:
                if (first + second) * MIN_ROUNDS > PATIENCE * max(seconds, MIN_SECONDS):
                    return None
                continue
            ratios.append(first / second)
            late = time.perf_counter() - began > seconds
            if ratios[0] < HOPELESS or (late and len(ratios) >= MIN_ROUNDS):
                break
    return statistics.median(ratios) if ratios else HOPELESS


def _step_seconds(state: State, batch: Batch) -> float:
    clock = state.loader.clock(0)
    state.set_lr(clock)
    began = time.perf_counter()
    train_step(state.to_device(batch), state, clock)
    return time.perf_counter() - began
