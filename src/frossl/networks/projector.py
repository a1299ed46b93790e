"""The projector: an MLP between features and the objective; and the predictor behind it."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def output_of(projector: nn.Module) -> int:
    """How many numbers it gives."""
    return [module.out_features for module in projector.modules() if isinstance(module, nn.Linear)][-1]


def build_projector(
    features: int, *, hidden: int, out: int, layers: int = 3, norm: bool = False
) -> nn.Sequential:
    """(Linear–BatchNorm–ReLU) × (layers − 1), then Linear: as in the paper.

    norm: one more BatchNorm at the end, without weights of its own, as SimSiam has it.
    """
    widths = [features] + [hidden] * (layers - 1)
    modules: list[nn.Module] = []
    for before, after in pairwise(widths):
        modules += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
    modules.append(nn.Linear(widths[-1], out, bias=not norm))
    return nn.Sequential(*modules, *([nn.BatchNorm1d(out, affine=False)] if norm else []))


def build_predictor(projector: nn.Module, *, hidden: int) -> nn.Sequential:
    """From projections to projections, with one hidden layer."""
    width = output_of(projector)
    return build_projector(width, hidden=hidden, out=width, layers=2)
