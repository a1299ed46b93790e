"""Batches of labelled, augmented images for linear probes and fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from frossl.augment import Augment, ViewSpec
from frossl.config import ViewKernel
from frossl.evaluation.split import Labelled
from frossl.networks import Encoder
from frossl.types import Clock

Progress = Callable[[int, int], None]
"""Callback with the number of steps done and their total."""


@dataclass(frozen=True)
class SupervisedData:
    """Settings of supervised training, and its batches."""

    epochs: int
    batch_size: int = 256
    seed: int = 0
    whole: bool = True
    """Whether crops are taken from whole images instead of from their central squares."""
    kernel: ViewKernel = "torch"
    """Implementation of the augmentations."""
    max_steps: int | None = None
    """Number of steps after which training ends early, for smoke tests."""
    progress: Progress | None = None
    """Callback that is called after each step."""

    def batches(self, images: Labelled, encoder: Encoder) -> Iterator[tuple[Tensor, Tensor, Clock]]:
        """Yield the batches of all epochs, each image once per epoch in random order.

        Args:
            images: The images and their labels.
            encoder: The encoder, whose size, mean, standard deviation and device the views have.

        Yields:
            Random crops and flips (N, C, S, S), their labels (N,), and the clock of the step.
        """
        device = encoder.mean.device
        spec = ViewSpec(size=encoder.size, scale=(0.08, 1.0), flip=0.5)
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
                batch = images.source.read(images.ids[rows], whole=self.whole)
                readable = batch.ids == images.ids[rows]  # sources replace unreadable files by other images
                (views,) = crop(batch[readable].to(device), clock)
                yield views[0], images.labels[rows][readable].to(device), clock
                if self.progress is not None:
                    self.progress(clock.step + 1, total)


def zero_head(features: int, classes: int, device: torch.device | str = "cpu") -> nn.Linear:
    """Return a linear layer with zero weights and bias; no random number is drawn."""
    head: nn.Linear = nn.utils.skip_init(nn.Linear, features, classes, device=device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
