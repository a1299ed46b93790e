"""DINO: a student predicts its teacher's distribution over outputs; the teacher is exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from frossl.config import Positive, Several, Share
from frossl.methods.momentum import Momentum
from frossl.networks import Prototypes, output_of
from frossl.objectives import Objective
from frossl.optim import linear
from frossl.types import Clock


class DINO(Momentum):
    """DINO: the projector ends in a last layer of unit-length prototypes, and z are its logits.

    Args:
        backbone: Network from images to features.
        projector: Network from features to the input of the last layer.
        objective: Loss on the logits.
        outputs: Number of prototypes in the last layer.
        ema: Momentum of the teacher at the first step.
        ema_end: Momentum of the teacher at the last step, reached along a cosine.
        freeze: Share of the steps, from the first on, in which the last layer is not updated.
        warm_temperature: Temperature of the teacher at the first step. It moves linearly to the objective's
            `target_temperature`.
        temperature_warmup: Share of the steps over which the teacher's temperature moves.
    """

    multi_crop: ClassVar[bool] = True
    encoder_name: ClassVar[str] = "teacher.0"  # the teacher's backbone

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

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        step, total = clock.schedule
        temperature = linear(
            step,
            total=round(self.temperature_warmup * total),
            start=self.warm_temperature,
            end=self.objective.options["target_temperature"],
        )
        return {**super().inputs(gathered, clock), "target_temperature": temperature}

    def before_update(self, clock: Clock) -> None:
        step, total = clock.schedule
        if step < self.freeze * total:
            last = self.projector.get_submodule("1")
            last.weight.grad = None
