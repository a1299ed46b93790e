"""Methods in which views predict a target: SimSiam, and those with an EMA teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from frossl.config import Count, Share
from frossl.methods.base import Method
from frossl.networks import build_predictor, ema_update, make_teacher
from frossl.objectives import Objective
from frossl.optim import cosine
from frossl.types import Clock


class SimSiam(Method):
    """SimSiam: a predictor, whose targets are the detached projections of the other views.

    Args:
        backbone: Network from images to features.
        projector: Network from features to projections.
        objective: Loss on the predictions.
        predictor_hidden: Width of the predictor's hidden layer.
    """

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        objective: Objective,
        *,
        predictor_hidden: Count = 512,
    ) -> None:
        super().__init__(backbone, projector, objective)
        self.head = build_predictor(projector, hidden=predictor_hidden)

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        return {"target": gathered["z"].detach()}


class Momentum(Method):
    """An EMA teacher, whose projections of the global views are the targets.

    Args:
        backbone: Network from images to features.
        projector: Network from features to projections.
        objective: Loss on the student's projections.
        ema: Momentum of the teacher at the first step.
        ema_end: Momentum of the teacher at the last step, reached along a cosine.
    """

    multi_crop: ClassVar[bool] = False

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        objective: Objective,
        *,
        ema: Share = 0.99,
        ema_end: Share = 1.0,
    ) -> None:
        super().__init__(backbone, projector, objective)
        self.ema, self.ema_end = ema, ema_end
        self.teacher = make_teacher(self.student())

    def student(self) -> nn.Sequential:
        """Return the networks that the teacher averages: backbone and projector, without the predictor."""
        return nn.Sequential(self.backbone, self.projector)

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"target": self.each_view(self.teacher, views[:1])}

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        return {**super().inputs(gathered, clock), "target": gathered["target"]}

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        super().after_update(state, clock)
        step, total = clock.schedule
        momentum = cosine(step, total=total, start=self.ema, end=self.ema_end)
        ema_update(self.teacher, self.student(), momentum=momentum)


class BYOL(Momentum):
    """BYOL: an EMA teacher, and a predictor on the student.

    Args:
        backbone: Network from images to features.
        projector: Network from features to projections.
        objective: Loss on the predictions.
        ema: Momentum of the teacher at the first step.
        ema_end: Momentum of the teacher at the last step, reached along a cosine.
        predictor_hidden: Width of the predictor's hidden layer.
    """

    multi_crop: ClassVar[bool] = True

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        objective: Objective,
        *,
        ema: Share = 0.99,
        ema_end: Share = 1.0,
        predictor_hidden: Count = 4096,
    ) -> None:
        super().__init__(backbone, projector, objective, ema=ema, ema_end=ema_end)
        self.head = build_predictor(projector, hidden=predictor_hidden)


class MatrixSSL(BYOL):
    """BYOL's networks for an objective that compares every view with every other."""

    multi_crop: ClassVar[bool] = False
