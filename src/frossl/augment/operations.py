"""The operations that make views out of resized crops: one object for each, in the order of application.

A new operation is a class here, its entry in `OPERATIONS`, and the field of `ViewSpec` with its probability,
0 by default.
"""

from __future__ import annotations

import itertools
from typing import ClassVar

import torch
from torch import Tensor

from frossl.augment.photometry import UNCHANGED, blur, gray, jitter, solarize
from frossl.config import ViewSpec

Parameters = tuple[Tensor, ...]
"""Parameters of an operation: tensors (P, ...), one row for each view."""
ORDERS = tuple(itertools.permutations(range(4)))
"""Possible orders of brightness, contrast, saturation and hue."""


class Operation:
    """An operation on views: its random numbers, its parameters and its function."""

    name: ClassVar[str]
    """Name of the operation, and of the field of `ViewSpec` that holds its probability."""
    draws: ClassVar[range]
    """Indices of its random numbers among those of a view; the first decides whether it is applied. No other
    operation has them, and they never change, or runs would not repeat."""
    compiled: ClassVar[bool] = False
    """Whether `fused` has a compiled form of it. Views with an active operation that has none are made by
    torch."""

    def draw(self, spec: ViewSpec, chosen: Tensor, u: Tensor) -> Parameters:
        """Return the parameters of P views; by default only whether the operation is applied.

        Args:
            spec: Ranges of the parameters.
            chosen: Whether the operation is applied to each view, bool (P,).
            u: Its other random numbers in [0, 1), float (P, len(draws) - 1).
        """
        return (chosen,)

    def apply(self, views: Tensor, parameters: Parameters, spec: ViewSpec) -> Tensor:
        """Return the views after the operation; those that were not chosen stay as they are.

        Args:
            views: Views (P, C, S, S), float in [0, 1].
            parameters: Their parameters, as `draw` returns them.
            spec: Specification of the views.
        """
        raise NotImplementedError

    def probability(self, spec: ViewSpec) -> float:
        """Return the probability that a view undergoes the operation."""
        return float(getattr(spec, self.name))

    def active(self, spec: ViewSpec) -> bool:
        """Return whether views of this kind may undergo the operation."""
        return self.probability(spec) > 0

    def parameters(self, spec: ViewSpec, u: Tensor) -> Parameters:
        """Return the parameters of P views from all their random numbers, float (P, ...)."""
        own = u[:, self.draws.start : self.draws.stop]
        return self.draw(spec, own[:, 0] < self.probability(spec), own[:, 1:])


class Flip(Operation):
    """Horizontal flip. Parameters: whether a view is flipped, bool (P,)."""

    name, draws, compiled = "flip", range(1), True

    def apply(self, views: Tensor, parameters: Parameters, spec: ViewSpec) -> Tensor:
        """Return the views as they are: `crop_resize_flip` has flipped them already, at no cost."""
        return views


class Jitter(Operation):
    """Color jitter.

    Parameters: factors of brightness, contrast and saturation (1: unchanged) and shift of the hue
    (0: unchanged), float (P, 4); the order in which they are applied, int64 (P, 4).
    """

    name, draws, compiled = "jitter", range(1, 7), True

    def draw(self, spec: ViewSpec, chosen: Tensor, u: Tensor) -> Parameters:
        """Draw the amounts of the four adjustments, and their order."""
        strengths = (spec.brightness, spec.contrast, spec.saturation)
        ranges = [(max(0.0, 1 - amount), 1 + amount) for amount in strengths] + [(-spec.hue, spec.hue)]
        amounts = torch.stack([between(u[:, i], *bounds) for i, bounds in enumerate(ranges)], dim=1)
        orders = torch.tensor(ORDERS, device=u.device)
        return (
            torch.where(chosen[:, None], amounts, amounts.new_tensor(UNCHANGED)),
            orders[(u[:, 4] * len(ORDERS)).long()],
        )

    def apply(self, views: Tensor, parameters: Parameters, spec: ViewSpec) -> Tensor:
        """Adjust brightness, contrast, saturation and hue."""
        return jitter(views, *parameters)


class Gray(Operation):
    """Conversion to gray. Parameters: whether a view is converted, bool (P,)."""

    name, draws, compiled = "gray", range(7, 8), True

    def apply(self, views: Tensor, parameters: Parameters, spec: ViewSpec) -> Tensor:
        """Replace the chosen views by their luma."""
        return gray(views, *parameters)


class Blur(Operation):
    """Gaussian blur. Parameters: its standard deviation in pixels of the view, float (P,); 0 for none."""

    name, draws, compiled = "blur", range(8, 10), True

    def draw(self, spec: ViewSpec, chosen: Tensor, u: Tensor) -> Parameters:
        """Draw the standard deviation."""
        return (between(u[:, 0], *spec.sigma) * chosen,)

    def apply(self, views: Tensor, parameters: Parameters, spec: ViewSpec) -> Tensor:
        """Blur each view by its standard deviation."""
        return blur(views, *parameters, largest=spec.sigma[1])


class Solarize(Operation):
    """Solarization. Parameters: whether a view is solarized, bool (P,)."""

    name, draws, compiled = "solarize", range(10, 11), True

    def apply(self, views: Tensor, parameters: Parameters, spec: ViewSpec) -> Tensor:
        """Invert the bright values of the chosen views."""
        return solarize(views, *parameters)


OPERATIONS: dict[str, Operation] = {
    operation.name: operation for operation in (Flip(), Jitter(), Gray(), Blur(), Solarize())
}
"""The operations by name, in the order in which they are applied.

Their order here does not change their random numbers. Indices 11 to 41 belong to the crop (`CROP_DRAWS` in
`plan`), so those of a new operation begin at 42.
"""


def between(u: Tensor, low: float, high: float) -> Tensor:
    """Return numbers between `low` and `high` from numbers in [0, 1)."""
    return low + u * (high - low)


def active_operations(spec: ViewSpec) -> list[Operation]:
    """Return the operations that views of this kind may undergo, in their order."""
    return [operation for operation in OPERATIONS.values() if operation.active(spec)]
