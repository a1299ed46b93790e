"""Labelled crops, epoch after epoch: what probes and fine-tuning learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from frossl.augment import Augment, ViewSpec
from frossl.config import ViewKernel
from frossl.evaluation.split import Labelled
from frossl.networks import Encoder
from frossl.types import Batch, Clock

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Schooling:
    """How long and how much at once, and what is told of it.

    max_steps: end early, for smoke tests.
    """

    epochs: int
    batch_size: int = 256
    seed: int = 0
    kernel: ViewKernel = "torch"
    max_steps: int | None = None
    progress: Progress | None = None

    def lessons(self, images: Labelled, encoder: Encoder) -> Iterator[tuple[Tensor, Tensor, Clock]]:
        """Random crops and flips (N, C, S, S) of the encoder's size, on its device, and labels (N,)."""
        device = encoder.mean.device
        spec = ViewSpec(size=encoder.size, jitter=0.0, gray=0.0, blur=0.0)
        mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()
        crop = Augment((spec,), mean=mean, std=std, kernel=self.kernel)
        batches = -(-len(images.ids) // self.batch_size)
        total = self.epochs * batches
        for epoch in range(self.epochs):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            order = torch.randperm(len(images.ids), generator=generator)
            for number, rows in enumerate(order.tensor_split(batches)):
                clock = Clock(epoch * batches + number, total=total, epoch=epoch, seed=self.seed)
                if clock.step == self.max_steps:
                    return
                batch = images.source.read(images.ids[rows])
                itself = batch.ids == images.ids[rows]  # a bad file came as another image
                shown = Batch(batch.images[itself].to(device), batch.ids[itself].to(device))
                (views,) = crop(shown, clock)
                yield views[0], images.labels[rows][itself].to(device), clock
                if self.progress is not None:
                    self.progress(clock.step + 1, total)


def zero_head(features: int, classes: int, device: torch.device | str = "cpu") -> nn.Linear:
    """A linear layer that begins at zero; no random number is drawn."""
    head: nn.Linear = nn.utils.skip_init(nn.Linear, features, classes, device=device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
