"""Joint embedding: one network for all views, and an objective on its projections."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from frossl.errors import InputError
from frossl.networks import keep_frozen
from frossl.objectives import Objective
from frossl.types import Clock, LossTerms


class Method(nn.Module):
    """Backbone and projector shared by every view, with an objective.

    If a method has a `head` (a predictor or prototypes), the objective sees its output instead of the
    projections.
    """

    multi_crop: ClassVar[bool] = True
    """Whether views may have several sizes, the first of which is that of the global views."""

    objective_class: ClassVar[type[Objective] | None] = None
    """Objective of a method that is given by its class, in a file of the user's (docs/add_a_method.md)."""

    encoder_name: ClassVar[str] = "backbone"
    """Name of the submodule that is exported."""

    together: bool = False
    """Whether the views of one size are forwarded as one batch, so that BatchNorm sees them all at once."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.backbone, self.projector, self.objective = backbone, projector, objective
        self.head: nn.Module | None = None
        self._needs_rng = "rng" in inspect.signature(type(objective).function).parameters

    @property
    def encoder(self) -> nn.Module:
        """Network that is exported."""
        try:
            return self.get_submodule(self.encoder_name)
        except AttributeError:  # torch would report that there is no `encoder`
            raise InputError(
                f"{type(self).__name__} has no submodule {self.encoder_name!r}; correct its encoder_name"
            ) from None

    def train(self, mode: bool = True) -> Method:
        """Set training mode, except for frozen layers, which stay in evaluation mode."""
        super().train(mode)
        keep_frozen(self)
        return self

    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """Compute the targets of a step, once and without gradient; none by default."""
        return {}

    def project(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """Forward all views through the student.

        Args:
            views: Groups of views of one size, (V_s, N, C, S, S) each.

        Returns:
            `features` (V, N, F), `z` (V, N, D) and, with a head, `p` (V, N, ·).
        """
        features = self.each_view(self.backbone, views)
        z = self.each_view(self.projector, [features])
        tensors = {"features": features, "z": z}
        return tensors if self.head is None else {**tensors, "p": self.each_view(self.head, [z])}

    def each_view(self, network: nn.Module, groups: Sequence[Tensor]) -> Tensor:
        """Forward groups of views (V_s, N, …) to (V, N, ·). BatchNorm sees one view or group at a time."""
        if self.together:
            outputs = [network(group.flatten(0, 1)).unflatten(0, group.shape[:2]) for group in groups]
            return torch.cat(outputs)
        return torch.stack([network(view) for group in groups for view in group])

    def loss(self, gathered: Mapping[str, Tensor], clock: Clock) -> LossTerms:
        """Compute the loss from the outputs of `project` and `targets`, gathered from all processes."""
        projections = gathered["z" if self.head is None else "p"]
        return self.objective.terms(projections, **self.inputs(gathered, clock))

    def inputs(self, gathered: Mapping[str, Tensor], clock: Clock) -> dict[str, Any]:
        """Return the keyword arguments that the objective needs besides the projections."""
        return {"rng": clock.generator()} if self._needs_rng else {}

    def before_update(self, clock: Clock) -> None:
        """Run between the backward pass and the optimizer step; does nothing by default."""

    def after_update(self, state: dict[str, Tensor], clock: Clock) -> None:
        """Run after the optimizer step: store the running state that the objective returned."""
        self.objective.keep(state)
