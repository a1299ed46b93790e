"""Joint embedding: one network for all views, an objective on its projections."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from frossl.objectives import Objective
from frossl.types import Clock, LossTerms


class JointEmbedding(nn.Module):
    """Backbone and projector shared by every view."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.backbone, self.projector, self.objective = backbone, projector, objective

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
        return self.objective.terms(gathered["z"])

    def before_update(self, clock: Clock) -> None:
        """Between backward and optimizer: nothing here."""

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        """Keep the objective's running state."""
        self.objective.keep(state)
