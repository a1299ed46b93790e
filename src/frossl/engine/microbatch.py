"""Forward and backward pass in micro-batches, with the loss and the gradients of the whole batch.

The networks then need the memory of one micro-batch. A first pass projects all of them without a graph; the
loss of the whole batch gives the gradient of every projection; a second pass projects each micro-batch again
and backpropagates its share of that gradient. This is exact for every objective, as long as networks treat
images one by one. BatchNorm does not: it normalizes by its micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from frossl.engine.build import State
from frossl.engine.gather import Gathered, processes
from frossl.networks import frozen_batch_norm
from frossl.types import Clock, LossTerms


def micro_batch_count(state: State) -> int:
    """Return the number of micro-batches of a step: the same on every process, and none of a single image.

    DDP and SyncBatchNorm communicate in every forward pass, so all processes must make equally many.
    """
    size, batch = state.config.train.micro_batch_size, state.loader.batch_size
    if size is None:
        return 1
    largest, smallest = -(-batch // processes()), batch // processes()
    return max(1, min(-(-largest // size), smallest // 2))


def in_micro_batches(
    views: Sequence[Tensor], state: State, clock: Clock, count: int
) -> tuple[LossTerms, Gathered]:
    """Compute the loss and all gradients in `count` micro-batches, in two passes."""
    groups = [group.tensor_split(count, dim=1) for group in views]
    micro_batches = [list(part) for part in zip(*groups, strict=True)]
    targets, outputs, timed = [], [], state.stopwatch
    with timed("forward"), torch.no_grad(), frozen_batch_norm(state.method), state.fabric.autocast():
        for number, part in enumerate(micro_batches):
            seed_networks(state, clock, number)
            targets.append(state.method.targets(part))
            seed_networks(state, clock, number)
            outputs.append(state.method.project(part))
    leaves = {name: x.requires_grad_() for name, x in _concatenated(outputs).items()}
    gathered = Gathered({**_concatenated(targets), **leaves}, images=state.loader.batch_size)
    with timed("loss"):
        terms = state.method.loss(gathered, clock)
        gradients = torch.autograd.grad(terms.total, list(leaves.values()), allow_unused=True)
    shares = {
        name: gradient.tensor_split(count, dim=1)
        for name, gradient in zip(leaves, gradients, strict=True)
        if gradient is not None
    }
    for number, part in enumerate(micro_batches):
        # processes exchange gradients once, in the last micro-batch
        with state.fabric.no_backward_sync(state.wrapped, enabled=number < count - 1):
            seed_networks(state, clock, number)
            with timed("forward"), state.fabric.autocast():
                projected = state.project(part)
            # the gradient of this sum with respect to each projection is its share
            products = [(projected[name] * share[number]).sum() for name, share in shares.items()]
            with timed("backward"):
                state.fabric.backward(torch.stack(products).sum())
    return terms, gathered


def seed_networks(state: State, clock: Clock, number: int = 0) -> None:
    """Seed drop-path and the like, so that micro-batch `number` draws the same in every pass."""
    part = state.loader.rank + processes() * number
    torch.manual_seed((clock.seed * 1_000_003 + clock.step + 1_000_000_007 * part) % (1 << 63))


def _concatenated(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
