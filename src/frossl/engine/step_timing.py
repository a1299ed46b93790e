"""Time training steps and estimate their memory, before a run starts."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from frossl.augment import Transform
from frossl.config import Config
from frossl.data import Dataset, Source, Split, spread
from frossl.engine.build import State, build
from frossl.engine.step import train_step
from frossl.machine import memory
from frossl.methods import Method
from frossl.networks import Encoder, frozen_batch_norm
from frossl.types import isolated_rng

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MIN_STEPS = 4
"""Minimum number of timed steps; the first allocates memory and chooses kernels."""
WARMUP_DIVISOR = 3
"""The first 1/3 of the timed steps is left out of the mean."""
BATCHES, ENDLESS = 4, 1_000_000
"""Batches that a trial goes round, in so many epochs: where a source keeps what it has decoded, the first
epoch is slower than all others."""
PROBE_BATCHES = (2, 6)
"""Sizes of two small batches, whose difference gives the memory of an image."""
BACKWARD_FACTOR = 1.25
"""Factor for the memory of the backward pass beside what the forward pass saves (docs/decisions.md)."""
FIXED_BYTES = 1 << 28
"""Bytes for everything that does not grow with the batch: views, kernels, allocator."""


@dataclass(frozen=True)
class StepTiming:
    """Seconds of a training step, and of the encoder for one stored image.

    A young process is slower than an older one, by more than diagnostics will take (docs/decisions.md).
    """

    step_seconds: float
    image_seconds: float


def time_steps(
    config: Config,
    data: Dataset,
    fabric: Fabric | None = None,
    transform: Transform | None = None,
    *,
    seconds: float,
    method: Method | None = None,
) -> StepTiming:
    """Time training steps with networks that are thrown away; every process takes part.

    Args:
        config: Settled configuration.
        data: Its images; a few batches of them are used.
        fabric: The processes; one if None.
        transform: The user's function that makes views, if the run has one.
        seconds: How long to train.
        method: Networks at the start, which are left unchanged; built here if None.
    """
    source, batch = data.train.source, config.train.batch_size
    few = source.subset(spread(len(source), BATCHES * batch))
    endless = replace(config, train=replace(config.train, epochs=ENDLESS, steps=None, settlements=()))
    some = replace(data, train=Split(few, None))
    state = build(endless, some, fabric, transform, method=copy.deepcopy(method))
    with isolated_rng():
        step_seconds = _step_seconds(state, seconds)
        image_seconds = time_encoder(state.encoder, few)
    return StepTiming(step_seconds, image_seconds)


def _step_seconds(state: State, seconds: float) -> float:
    began = time.perf_counter()
    ends: list[float] = []
    for batch, clock in state.loader.batches():
        state.set_lr(clock)
        train_step(state.to_device(batch), state, clock)
        _wait_for(state.fabric.device)
        ends.append(time.perf_counter())
        if len(ends) >= MIN_STEPS and ends[-1] - began >= seconds:
            break
    counted = ends[min(len(ends) // WARMUP_DIVISOR, len(ends) - 2) :] if len(ends) > 1 else [began, *ends]
    return (counted[-1] - counted[0]) / (len(counted) - 1)


@torch.no_grad()
def time_encoder(encoder: Encoder, source: Source, *, images: int = 64) -> float:
    """Return the seconds that an encoder takes for one stored image, in evaluation mode.

    Args:
        encoder: The encoder, which is left in evaluation mode.
        source: Images to time it on.
        images: Number of images.
    """
    device = encoder.mean.device
    batch = source.read(spread(len(source), images)).images.to(device)
    encoder.eval()
    encoder(batch[:2])  # the first pass allocates
    began = time.perf_counter()
    encoder(batch)
    _wait_for(device)
    return (time.perf_counter() - began) / len(batch)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of one process in bytes: `base`, and `an_image` for each image of a micro-batch."""

    base: int
    an_image: int

    def of(self, images: int) -> int:
        return self.base + images * self.an_image

    def images_within(self, free: int) -> int:
        return max(0, (free - self.base) // max(self.an_image, 1))


def estimate_memory(config: Config, method: Method, images: int) -> MemoryEstimate:
    """Estimate the memory of a step.

    Counts, on two small batches, the tensors saved for the backward pass; adds weights, gradients, optimizer
    state, and the projections of a batch of `images`.
    """
    small, large = (_kept_bytes(method, _blank_views(config, count)) for count in PROBE_BATCHES)
    an_image = int(BACKWARD_FACTOR * (large - small) / (PROBE_BATCHES[1] - PROBE_BATCHES[0]))
    weights = sum(p.numel() * p.element_size() for p in method.parameters())
    states = 2 if config.optim.optimizer in ("adam", "adamw") else 1
    count, out = sum(spec.count for spec in config.views), config.network.projector_out
    loss = 4 * count * (3 * images * out + 2 * min(images, out) ** 2)
    return MemoryEstimate(base=FIXED_BYTES + weights * (1 + states) + loss, an_image=an_image)


def _blank_views(config: Config, images: int) -> list[Tensor]:
    channels, sizes = config.network.channels or 3, {spec.size for spec in config.views}
    counts = {size: sum(spec.count for spec in config.views if spec.size == size) for size in sizes}
    return [torch.zeros(counts[size], images, channels, size, size) for size in sorted(sizes, reverse=True)]


def _kept_bytes(method: Method, views: Sequence[Tensor]) -> int:
    """Return the bytes of distinct tensors that are saved for the backward pass, without the weights."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with isolated_rng(), frozen_batch_norm(method), saved_tensors_hooks(keep, lambda x: x):
        projected = method.project(views)
    weights = {p.untyped_storage().data_ptr() for p in method.parameters()}
    del projected  # held until here, so that no memory was counted and used again
    return sum(size for place, size in kept.items() if place not in weights)


def free_memory(device: str) -> int:
    """Return the bytes that this process may still allocate, on the device or the machine."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    _, free = memory()
    return (1 << 62) if free is None else free
