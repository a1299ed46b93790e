"""Methods in which views predict a target: SimSiam, and those with a teacher that follows the student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from frossl.config import Count, Share
from frossl.methods.joint import JointEmbedding
from frossl.networks import build_predictor, follow, teacher_of
from frossl.objectives import Objective
from frossl.optim import cosine
from frossl.types import Clock


class SimSiam(JointEmbedding):
    """A predictor, and the stopped projections of the other views as targets."""

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


class Momentum(JointEmbedding):
    """A teacher that follows the student; its outputs for the global views are the targets.

    ema, ema_end: how much of the teacher stays in a step, rising along a cosine.
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
        self.teacher = teacher_of(self.followed())

    def followed(self) -> nn.Sequential:
        """The part of the student that the teacher follows."""
        return nn.Sequential(self.backbone, self.projector)

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"target": self.each_view(self.teacher, views[:1])}

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        return {**super().inputs(gathered, clock), "target": gathered["target"]}

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        super().after_update(state, clock)
        inertia = cosine(clock.step, total=clock.total, start=self.ema, end=self.ema_end)
        follow(self.teacher, self.followed(), momentum=inertia)


class BYOL(Momentum):
    """A teacher, and a predictor on the student's side."""

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
    """As BYOL, with an objective that compares every view with every other."""

    multi_crop: ClassVar[bool] = False
