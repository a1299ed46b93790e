"""What a run will cost, found out by steps that are thrown away and by counting what a step keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from frossl.augment import Transform
from frossl.config import Config
from frossl.data import Dataset, Part, spread
from frossl.engine.build import State, build
from frossl.engine.step import train_step
from frossl.methods import JointEmbedding
from frossl.networks import still_statistics
from frossl.runs import RunFolder
from frossl.runs.machine import memory
from frossl.types import own_random_numbers

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LEAST_STEPS = 4
"""Of a trial, however long they take; the first allocates memory and chooses kernels."""
SHORTEST_PART = 3
"""A run is thought of as being as fast as the later two thirds of its trial."""
BATCHES, ENDLESS = 4, 1_000_000
"""Batches that a trial goes round, in so many epochs: where a source keeps what it has decoded, the first
epoch is slower than all others."""
IMAGES = (2, 6)
"""Two small batches, whose difference tells what an image takes."""
BEHIND = 1.25
"""The backward pass needs room of its own beside what the forward pass kept (docs/decisions.md)."""
AROUND = 1 << 28
"""Bytes for everything that does not grow with the batch: views, kernels, what the allocator keeps."""


@dataclass(frozen=True)
class Trial:
    """Seconds that a step takes, and that the encoder takes for an image as it is stored.

    A young process is slower than an older one, by more than diagnostics will take (docs/decisions.md).
    """

    step_seconds: float
    image_seconds: float


def try_out(
    config: Config,
    data: Dataset,
    fabric: Fabric | None = None,
    transform: Transform | None = None,
    *,
    seconds: float,
) -> Trial:
    """Train for a while with a state that is thrown away. Every process takes part."""
    source, batch = data.train.source, config.train.batch_size
    few = source.subset(spread(len(source), BATCHES * batch))
    endless = replace(config, train=replace(config.train, epochs=ENDLESS, steps=None))
    some = replace(data, train=Part(few, None))
    state = build(endless, some, RunFolder(os.devnull), fabric, transform)
    with own_random_numbers():
        step_seconds = _step_seconds(state, seconds)
        image_seconds = _image_seconds(state)
    return Trial(step_seconds, image_seconds)


def _step_seconds(state: State, seconds: float) -> float:
    began = time.perf_counter()
    ends: list[float] = []
    for batch, clock in state.loader.batches():
        state.set_lr(clock)
        train_step(state.to_device(batch), state, clock)
        _wait_for(state.fabric.device)
        ends.append(time.perf_counter())
        if len(ends) >= LEAST_STEPS and ends[-1] - began >= seconds:
            break
    counted = ends[min(len(ends) // SHORTEST_PART, len(ends) - 2) :] if len(ends) > 1 else [began, *ends]
    return (counted[-1] - counted[0]) / (len(counted) - 1)


@torch.no_grad()
def _image_seconds(state: State, images: int = 64) -> float:
    encoder = state.observer.encoder
    batch = state.to_device(state.loader.source.read(torch.arange(min(images, len(state.loader.source)))))
    encoder.eval()
    encoder(batch.images[:2])  # the first pass allocates
    began = time.perf_counter()
    encoder(batch.images)
    _wait_for(state.fabric.device)
    return (time.perf_counter() - began) / len(batch)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Memory:
    """Bytes of one process: what there is before any image, and what each image of a micro-batch adds."""

    base: int
    an_image: int

    def of(self, images: int) -> int:
        return self.base + images * self.an_image

    def images_within(self, free: int) -> int:
        return max(0, (free - self.base) // max(self.an_image, 1))


def memory_of(config: Config, method: JointEmbedding, images: int) -> Memory:
    """Counted on two small batches: tensors that the forward pass keeps for the backward pass, weights with
    gradients and the optimizer's state, and the projections of a batch of `images`."""
    small, large = (_kept_bytes(method, _blank_views(config, count)) for count in IMAGES)
    an_image = int(BEHIND * (large - small) / (IMAGES[1] - IMAGES[0]))
    weights = sum(p.numel() * p.element_size() for p in method.parameters())
    states = 2 if config.optim.optimizer in ("adam", "adamw") else 1
    count, out = sum(spec.count for spec in config.views), config.network.projector_out
    loss = 4 * count * (3 * images * out + 2 * min(images, out) ** 2)
    return Memory(base=AROUND + weights * (1 + states) + loss, an_image=an_image)


def _blank_views(config: Config, images: int) -> list[Tensor]:
    channels, sizes = config.network.channels or 3, {spec.size for spec in config.views}
    counts = {size: sum(spec.count for spec in config.views if spec.size == size) for size in sizes}
    return [torch.zeros(counts[size], images, channels, size, size) for size in sorted(sizes, reverse=True)]


def _kept_bytes(method: JointEmbedding, views: Sequence[Tensor]) -> int:
    """Of distinct memory that a backward pass would need, without the weights."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with own_random_numbers(), still_statistics(method), saved_tensors_hooks(keep, lambda x: x):
        projected = method.project(views)
    weights = {p.untyped_storage().data_ptr() for p in method.parameters()}
    del projected  # held until here, so that no memory was counted and used again
    return sum(size for place, size in kept.items() if place not in weights)


def free_memory(device: str) -> int:
    """Bytes that this process may still take: of the device, or of the machine and its container."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    _, free = memory()
    return (1 << 62) if free is None else free
