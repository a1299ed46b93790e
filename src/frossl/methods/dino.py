"""DINO: a student predicts its teacher's distribution over outputs; the teacher is exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from frossl.config import Positive, Several, Share
from frossl.methods.predicting import Momentum
from frossl.networks import Prototypes, output_of
from frossl.objectives import Objective
from frossl.optim import linear
from frossl.types import Clock


class DINO(Momentum):
    """The projector ends in `outputs` prototypes of unit length, the last layer: z are its logits.

    ema, ema_end: the teacher's inertia. freeze: share of the steps in which the last layer stays. The
    teacher's temperature rises from `warm_temperature` over `temperature_warmup` of the steps.
    """

    multi_crop: ClassVar[bool] = True

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        objective: Objective,
        *,
        outputs: Several = 4096,
        ema: Share = 0.9995,
        ema_end: Share = 1.0,
        freeze: Share = 0.001,
        warm_temperature: Positive = 0.04,
        temperature_warmup: Share = 0.05,
    ) -> None:
        last = Prototypes(output_of(projector), outputs, weight_norm=True)
        super().__init__(backbone, nn.Sequential(projector, last), objective, ema=ema, ema_end=ema_end)
        self.freeze = freeze
        self.warm_temperature, self.temperature_warmup = warm_temperature, temperature_warmup

    @property
    def encoder(self) -> nn.Module:
        return self.teacher[0]

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        temperature = linear(
            clock.step,
            total=round(self.temperature_warmup * clock.total),
            start=self.warm_temperature,
            end=self.objective.options["target_temperature"],
        )
        return {**super().inputs(gathered, clock), "target_temperature": temperature}

    def before_update(self, clock: Clock) -> None:
        if clock.step < self.freeze * clock.total:
            last = self.projector.get_submodule("1")
            last.weight.grad = None
