"""One training step: views, forward pass, loss, backward pass, update."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from frossl.engine.build import State
from frossl.engine.gather import Gathered, average_statistics
from frossl.engine.microbatch import in_micro_batches, micro_batch_count, seed_networks
from frossl.errors import BadStepError, NotFiniteError
from frossl.types import Batch, Clock, LossTerms


def train_step(batch: Batch, state: State, clock: Clock) -> tuple[LossTerms, Gathered]:
    """Make one update of the weights; a step that is not finite changes nothing and raises `BadStepError`.

    Returns:
        The terms of the loss, and the tensors of the global batch that it was computed from.
    """
    method, guard, optimizer, timed = state.method, state.guard, state.optimizer, state.stopwatch
    with timed("views"):
        views = state.augment(batch, clock)
    guard.remember(method)
    try:
        terms, tensors = forward_backward(views, state, clock)
        with timed("update"):
            average_statistics(method)
            method.before_update(clock)
            if state.config.optim.clip is not None:
                torch.nn.utils.clip_grad_norm_(method.parameters(), state.config.optim.clip)
            guard.check(terms, method, optimizer, clock)
    except (NotFiniteError, BadStepError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
        optimizer.zero_grad()
        guard.restore(method)
        if isinstance(error, BadStepError):
            raise
        raise BadStepError(clock.step, {}, str(error)) from error  # the objective refused its input
    with timed("update"):
        optimizer.step()
        optimizer.zero_grad()
        method.after_update(terms.state, clock)
        guard.undo(method)
    return terms, tensors


def forward_backward(views: Sequence[Tensor], state: State, clock: Clock) -> tuple[LossTerms, Gathered]:
    """Compute the loss of the global batch and the gradient of every weight."""
    if (count := micro_batch_count(state)) > 1:
        return in_micro_batches(views, state, clock, count)
    timed = state.stopwatch
    with timed("forward"), state.fabric.autocast():
        seed_networks(state, clock)
        targets = state.method.targets(views)
        seed_networks(state, clock)
        projected = state.project(views)
    gathered = Gathered({**targets, **projected}, images=state.loader.batch_size)
    with timed("loss"):
        terms = state.method.loss(gathered, clock)
    with timed("backward"):
        state.fabric.backward(terms.total)
    return terms, gathered
