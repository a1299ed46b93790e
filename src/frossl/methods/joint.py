"""Joint embedding: one network for all views, an objective on its projections."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from frossl.objectives import Objective
from frossl.types import Clock, LossTerms


class JointEmbedding(nn.Module):
    """Backbone and projector shared by every view."""

    multi_crop: ClassVar[bool] = True
    """Views may have several sizes; the first is the global one."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.backbone, self.projector, self.objective = backbone, projector, objective
        self._draws = "rng" in inspect.signature(type(objective).function).parameters

    @property
    def encoder(self) -> nn.Module:
        """What is exported."""
        return self.backbone

    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """What is computed once a step without gradient: nothing here."""
        return {}

    def project(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """Lists of (V_s, N, C, S, S) -> features (V, N, F) and z (V, N, D).

        BatchNorm sees one view at a time.
        """
        features = [self.backbone(view) for size in views for view in size]
        return {"features": torch.stack(features), "z": torch.stack([self.projector(f) for f in features])}

    def loss(self, gathered: dict[str, Tensor], clock: Clock) -> LossTerms:
        return self.objective.terms(gathered["z"], **self.inputs(gathered, clock))

    def inputs(self, gathered: dict[str, Tensor], clock: Clock) -> dict[str, Any]:
        """What the objective needs besides z."""
        return {"rng": clock.generator()} if self._draws else {}

    def before_update(self, clock: Clock) -> None:
        """Between backward and optimizer: nothing here."""

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        """Keep the objective's running state."""
        self.objective.keep(state)
