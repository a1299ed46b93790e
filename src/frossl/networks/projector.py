"""Projector, the MLP between features and objective, and predictor, the MLP after it."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def output_of(projector: nn.Module) -> int:
    """Return the output width of a projector."""
    return [module.out_features for module in projector.modules() if isinstance(module, nn.Linear)][-1]


def build_projector(
    features: int, *, hidden: int, out: int, layers: int = 3, norm: bool = False
) -> nn.Sequential:
    """Build a projector: (Linear–BatchNorm–ReLU) × (layers − 1), then Linear, as in the paper.

    Args:
        features: Width of the input.
        hidden: Width of the hidden layers.
        out: Width of the output.
        layers: Number of linear layers.
        norm: Whether to end with a BatchNorm without affine parameters, as in SimSiam.
    """
    widths = [features] + [hidden] * (layers - 1)
    modules: list[nn.Module] = []
    for before, after in pairwise(widths):
        modules += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
    modules.append(nn.Linear(widths[-1], out, bias=not norm))
    return nn.Sequential(*modules, *([nn.BatchNorm1d(out, affine=False)] if norm else []))


def build_predictor(projector: nn.Module, *, hidden: int) -> nn.Sequential:
    """Build a predictor with one hidden layer, whose input and output have the width of the projections."""
    width = output_of(projector)
    return build_projector(width, hidden=hidden, out=width, layers=2)
