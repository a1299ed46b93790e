"""One training step."""

from __future__ import annotations

import torch

from frossl.engine.build import State
from frossl.engine.gather import Gathered, average_statistics
from frossl.engine.microbatch import loss_and_gradients
from frossl.errors import BadStepError, NotFiniteError
from frossl.types import Batch, Clock, LossTerms


def train_step(batch: Batch, state: State, clock: Clock) -> tuple[LossTerms, Gathered]:
    """Views, projections, loss, update; what came of it. A step that is not finite changes nothing."""
    method, guard, optimizer, timed = state.method, state.guard, state.optimizer, state.stopwatch
    with timed("views"):
        views = state.augment(batch, clock)
    guard.remember(method)
    try:
        terms, tensors = loss_and_gradients(views, state, clock)
        with timed("update"):
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
    with timed("update"):
        optimizer.step()
        optimizer.zero_grad()
        method.after_update(terms.state, clock)
        guard.undo(method)
    return terms, tensors
