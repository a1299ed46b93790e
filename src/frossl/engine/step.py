"""One training step."""

from __future__ import annotations

import os
import statistics
import time

import torch

from frossl.config import Config
from frossl.data import Dataset
from frossl.engine.build import State, build
from frossl.engine.gather import gather
from frossl.errors import NotFiniteError, TrainingError
from frossl.runs import RunFolder
from frossl.types import Batch, Clock, LossTerms


def train_step(batch: Batch, state: State, clock: Clock) -> LossTerms:
    """Views, projections, loss, update. A step whose loss or gradient is not finite changes no weight."""
    method = state.method
    torch.manual_seed(clock.seed * 1_000_003 + clock.step)  # for what networks draw: drop-path and the like
    views = state.augment(batch, clock)
    with state.fabric.autocast():
        tensors = {**method.targets(views), **method.project(views)}
    try:
        terms: LossTerms = method.loss(gather(tensors), clock)
    except NotFiniteError as error:
        raise TrainingError(f"step {clock.step} is not finite ({error}); try a lower --lr") from error
    state.fabric.backward(terms.total)
    _check_finite(terms, state, clock)
    method.before_update(clock)
    if state.config.optim.clip is not None:
        torch.nn.utils.clip_grad_norm_(method.parameters(), state.config.optim.clip)
    state.optimizer.step()
    state.optimizer.zero_grad()
    method.after_update(terms.state, clock)
    if state.watched:
        state.last = {name: tensors[name].detach() for name in ("features", "z")}
    return terms


def seconds_per_step(config: Config, data: Dataset, *, steps: int = 20) -> float:
    """How long a step takes here: the median of a few, made with a state that is thrown away."""
    state = build(config, data, RunFolder(os.devnull))
    seconds = []
    with torch.random.fork_rng(devices=[]):
        for step in range(steps):
            began = time.perf_counter()
            clock = state.loader.clock(step)
            batch = state.loader.source.read(state.loader.ids(step % state.loader.steps_per_epoch))
            train_step(state.to_device(batch), state, clock)
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[8:])  # the first ones allocate memory and choose kernels


def _check_finite(terms: LossTerms, state: State, clock: Clock) -> None:
    gradients = [p.grad for p in state.method.parameters() if p.grad is not None]
    size = torch.nn.utils.get_total_norm(gradients)
    if not (terms.total + size).isfinite():  # waits for the device
        numbers = {**terms.to_floats(), "gradient norm": size.item()}
        raise TrainingError(f"step {clock.step} is not finite ({numbers}); try a lower --lr")
