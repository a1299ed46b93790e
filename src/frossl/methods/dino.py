"""DINO: a student predicts its teacher's distribution over outputs; the teacher is exported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from frossl.methods.joint import JointEmbedding
from frossl.networks import Prototypes, follow, output_of, teacher_of
from frossl.objectives import Objective
from frossl.optim import cosine, linear
from frossl.types import Clock, LossTerms


class DINO(JointEmbedding):
    """outputs: how many. ema, ema_end: the teacher's inertia. freeze: share of the steps in which the last
    layer stays. target_temperature rises from `warm_temperature` over `temperature_warmup` of the steps."""

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        objective: Objective,
        *,
        outputs: int = 4096,
        ema: float = 0.996,
        ema_end: float = 1.0,
        freeze: float = 0.01,
        warm_temperature: float = 0.04,
        temperature_warmup: float = 0.1,
    ) -> None:
        super().__init__(backbone, projector, objective)
        self.last = Prototypes(output_of(projector), outputs)
        self.teacher = teacher_of(nn.Sequential(backbone, projector, self.last))
        self.ema, self.ema_end, self.freeze = ema, ema_end, freeze
        self.warm_temperature, self.temperature_warmup = warm_temperature, temperature_warmup

    @property
    def encoder(self) -> nn.Module:
        return self.teacher[0]

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"target": torch.stack([self.teacher(view) for view in views[0]])}

    def project(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        projected = super().project(views)
        return {**projected, "logits": torch.stack([self.last(z) for z in projected["z"]])}

    def loss(self, gathered: dict[str, Tensor], clock: Clock) -> LossTerms:
        return self.objective.terms(gathered["logits"], **self.inputs(gathered, clock))

    def inputs(self, gathered: dict[str, Tensor], clock: Clock) -> dict[str, Any]:
        temperature = linear(
            clock.step,
            total=round(self.temperature_warmup * clock.total),
            start=self.warm_temperature,
            end=self.objective.options["target_temperature"],
        )
        return {"target": gathered["target"], "target_temperature": temperature}

    def before_update(self, clock: Clock) -> None:
        if clock.step < self.freeze * clock.total:
            self.last.weight.grad = None

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        super().after_update(state, clock)
        self.last.renormalize()
        decay = cosine(clock.step, total=clock.total, start=self.ema, end=self.ema_end)
        follow(self.teacher, nn.Sequential(self.backbone, self.projector, self.last), momentum=decay)
