"""One training step."""

from __future__ import annotations

from frossl.engine.build import State
from frossl.engine.gather import gather
from frossl.errors import TrainingError
from frossl.types import Batch, Clock, LossTerms


def train_step(batch: Batch, state: State, clock: Clock) -> LossTerms:
    """Views, projections, loss, update. A step whose loss is not finite changes nothing."""
    views = state.augment(batch, clock)
    targets, projected = state.method.targets(views), state.method.project(views)
    terms = state.method.loss(gather({**targets, **projected}), clock)
    if not terms.total.isfinite():  # waits for the device
        raise TrainingError(
            f"the loss is not finite at step {clock.step} ({terms.to_floats()}); try a lower --lr"
        )
    state.fabric.backward(terms.total)
    state.method.before_update(clock)
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.method.after_update(terms.state, clock)
    return terms
