"""The loss of a batch and the gradient of every weight: at once, or in micro-batches with the same result.

In micro-batches the memory of the networks is that of one of them. A first pass projects them all without a
graph; the loss of the whole batch gives the gradient of every projection; a second pass projects each again
and hands its share of that gradient on. The objective never learns of it, so this is exact for every one,
as long as networks treat images one by one. BatchNorm does not: it normalizes by its micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from frossl.engine.build import State
from frossl.engine.gather import Gathered, processes
from frossl.networks import still_statistics
from frossl.types import Clock, LossTerms

Views = Sequence[Tensor]


def loss_and_gradients(views: Views, state: State, clock: Clock) -> tuple[LossTerms, Gathered]:
    """The terms of the global batch, gradients at the weights, and what the loss was computed of."""
    parts = _parts(views, _count(state))
    compute = _at_once if len(parts) == 1 else _in_two_passes
    return compute(parts, state, clock)


def _count(state: State) -> int:
    """How many micro-batches a step has: the same on every process, and none of a single image.

    DDP and SyncBatchNorm exchange something with every forward pass, so processes must make equally many.
    """
    size, batch = state.config.train.micro_batch_size, state.loader.batch_size
    if size is None:
        return 1
    largest, smallest = -(-batch // processes()), batch // processes()
    return max(1, min(-(-largest // size), smallest // 2))


def _parts(views: Views, count: int) -> list[list[Tensor]]:
    """Views of so many micro-batches, as equal as can be."""
    groups = [group.tensor_split(count, dim=1) for group in views]
    return [list(part) for part in zip(*groups, strict=True)]


def _at_once(parts: list[list[Tensor]], state: State, clock: Clock) -> tuple[LossTerms, Gathered]:
    (views,), timed = parts, state.stopwatch
    with timed("forward"), state.fabric.autocast():
        targets = _targets(views, state, clock, 0)
        _seed(clock, 0, state)
        tensors = {**targets, **state.project(views)}
    gathered = Gathered(tensors, images=state.loader.batch_size)
    with timed("loss"):
        terms = state.method.loss(gathered, clock)
    with timed("backward"):
        state.fabric.backward(terms.total)
    return terms, gathered


def _in_two_passes(parts: list[list[Tensor]], state: State, clock: Clock) -> tuple[LossTerms, Gathered]:
    targets, outputs, timed = [], [], state.stopwatch
    with timed("forward"), torch.no_grad(), still_statistics(state.method), state.fabric.autocast():
        for number, views in enumerate(parts):
            targets.append(_targets(views, state, clock, number))
            _seed(clock, number, state)
            outputs.append(state.method.project(views))
    leaves = {name: x.requires_grad_() for name, x in _joined(outputs).items()}
    gathered = Gathered({**_joined(targets), **leaves}, images=state.loader.batch_size)
    with timed("loss"):
        terms = state.method.loss(gathered, clock)
        gradients = torch.autograd.grad(terms.total, list(leaves.values()), allow_unused=True)
    shares = {
        name: gradient.tensor_split(len(parts), dim=1)
        for name, gradient in zip(leaves, gradients, strict=True)
        if gradient is not None
    }
    for number, views in enumerate(parts):
        # processes exchange gradients once, with the last
        with state.fabric.no_backward_sync(state.wrapped, enabled=number < len(parts) - 1):
            _seed(clock, number, state)
            with timed("forward"), state.fabric.autocast():
                projected = state.project(views)
            # its gradient in each projection is that share
            products = [(projected[name] * share[number]).sum() for name, share in shares.items()]
            with timed("backward"):
                state.fabric.backward(torch.stack(products).sum())
    return terms, gathered


def _targets(views: Views, state: State, clock: Clock, number: int) -> dict[str, Tensor]:
    _seed(clock, number, state)
    return state.method.targets(views)


def _seed(clock: Clock, number: int, state: State) -> None:
    """For what networks draw, drop-path and the like: the same whenever this micro-batch is projected."""
    part = state.loader.rank + processes() * number
    torch.manual_seed((clock.seed * 1_000_003 + clock.step + 1_000_000_007 * part) % (1 << 63))


def _joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
