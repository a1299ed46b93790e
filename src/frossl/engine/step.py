"""One training step."""

from __future__ import annotations

import os
import statistics
import time

import torch

from frossl.config import Config
from frossl.data import Dataset
from frossl.engine.build import State, build
from frossl.engine.gather import Gathered, average_statistics
from frossl.engine.microbatch import loss_and_gradients
from frossl.errors import BadStepError, NotFiniteError
from frossl.runs import RunFolder
from frossl.types import Batch, Clock, LossTerms


def train_step(batch: Batch, state: State, clock: Clock) -> tuple[LossTerms, Gathered]:
    """Views, projections, loss, update; what came of it. A step that is not finite changes nothing."""
    method, guard, optimizer = state.method, state.guard, state.optimizer
    views = state.augment(batch, clock)
    guard.remember(method)
    try:
        terms, tensors = loss_and_gradients(views, state, clock)
        average_statistics(method)
        method.before_update(clock)
        if state.config.optim.clip is not None:
            torch.nn.utils.clip_grad_norm_(method.parameters(), state.config.optim.clip)
        guard.judge(terms, method, optimizer, clock)
    except (NotFiniteError, BadStepError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
        optimizer.zero_grad()
        guard.restore(method)
        if isinstance(error, BadStepError):
            raise
        raise BadStepError(clock.step, {}, str(error)) from error  # projections that no objective takes
    optimizer.step()
    optimizer.zero_grad()
    method.after_update(terms.state, clock)
    guard.undo(method)
    return terms, tensors


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
