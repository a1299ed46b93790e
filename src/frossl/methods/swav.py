"""SwAV: views predict each other's balanced assignments to prototypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frossl.config import Length, Several, Share
from frossl.methods.base import Method
from frossl.networks import Prototypes, output_of
from frossl.objectives import Objective
from frossl.types import Clock, LossTerms


class SwAV(Method):
    """SwAV: a head of prototypes, and optionally a queue of earlier embeddings.

    Args:
        backbone: Network from images to features.
        projector: Network from features to projections.
        objective: Loss on the scores.
        prototypes: Number of prototypes.
        freeze: Share of the steps, from the first on, in which the prototypes are not updated.
        queue_size: Number of embeddings of earlier images, for each global view, that take part in the
            assignment; 0 for no queue.
        queue_from: Share of the steps after which the queue is used.
    """

    head: Prototypes
    queue: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        objective: Objective,
        *,
        prototypes: Several = 3000,
        freeze: Share = 0.002,
        queue_size: Length = 0,
        queue_from: Share = 0.05,
    ) -> None:
        super().__init__(backbone, projector, objective)
        width, global_views = output_of(projector), objective.options["global_views"]
        self.head = Prototypes(width, prototypes)
        self.freeze, self.queue_size, self.queue_from = freeze, queue_size, queue_from
        self.register_buffer("queue", torch.zeros(global_views, queue_size, width))

    def loss(self, gathered: Mapping[str, Tensor], clock: Clock) -> LossTerms:
        terms = super().loss(gathered, clock)
        if not self.queue_size:
            return terms
        newest = F.normalize(gathered["z"][: len(self.queue)].detach(), dim=-1)
        return replace(terms, state={**terms.state, "newest": newest})

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        """Return the scores of the queue by the current prototypes, without gradient, once it is full."""
        filled = clock.step * gathered["z"].shape[1] >= self.queue_size > 0
        step, total = clock.schedule
        if not filled or step < self.queue_from * total:
            return {}
        with torch.no_grad():
            return {"queue": self.head(self.queue)}

    def before_update(self, clock: Clock) -> None:
        step, total = clock.schedule
        if step < self.freeze * total:
            self.head.weight.grad = None

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        self.head.renormalize()
        if self.queue_size:
            newest = state["newest"].to(self.queue)
            self.queue = torch.cat([newest, self.queue], dim=1)[:, : self.queue_size]
