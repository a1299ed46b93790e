"""Joint embedding: one network for all views, an objective on its projections."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from frossl.networks import keep_frozen
from frossl.objectives import Objective
from frossl.types import Clock, LossTerms


class JointEmbedding(nn.Module):
    """Backbone and projector shared by every view; where a method has a `head`, the objective sees its output
    in place of the projections."""

    multi_crop: ClassVar[bool] = True
    """Views may have several sizes; the first is the global one."""

    together: bool = False
    """Forward the views of one size as one batch. BatchNorm then sees them all at once."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.backbone, self.projector, self.objective = backbone, projector, objective
        self.head: nn.Module | None = None
        self._draws = "rng" in inspect.signature(type(objective).function).parameters

    @property
    def encoder(self) -> nn.Module:
        """What is exported."""
        return self.backbone

    def train(self, mode: bool = True) -> JointEmbedding:
        super().train(mode)
        keep_frozen(self)
        return self

    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """What is computed once a step without gradient: nothing here."""
        return {}

    def project(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """Lists of (V_s, N, C, S, S) -> features (V, N, F), z (V, N, D) and, with a head, p (V, N, ·)."""
        features = self.each_view(self.backbone, views)
        z = self.each_view(self.projector, [features])
        tensors = {"features": features, "z": z}
        return tensors if self.head is None else {**tensors, "p": self.each_view(self.head, [z])}

    def each_view(self, network: nn.Module, groups: Sequence[Tensor]) -> Tensor:
        """Groups of views (V_s, N, …) -> (V, N, ·). BatchNorm sees one view at a time, or one group."""
        if self.together:
            outputs = [network(group.flatten(0, 1)).unflatten(0, group.shape[:2]) for group in groups]
            return torch.cat(outputs)
        return torch.stack([network(view) for group in groups for view in group])

    def loss(self, gathered: Mapping[str, Tensor], clock: Clock) -> LossTerms:
        seen = gathered["z" if self.head is None else "p"]
        return self.objective.terms(seen, **self.inputs(gathered, clock))

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        """What the objective needs besides the views."""
        return {"rng": clock.generator()} if self._draws else {}

    def before_update(self, clock: Clock) -> None:
        """Between backward and optimizer: nothing here."""

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        """Keep the objective's running state."""
        self.objective.keep(state)
