"""FroSSL (Skean et al., ECCV 2024, arXiv 2310.02903)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from torch import nn

from frossl.errors import InputError, unknown
from frossl.objectives.terms import (
    Normalization,
    Views,
    as_views,
    concentration,
    distance_to_mean,
    full_precision,
)
from frossl.objectives.terms import normalize as normalized
from frossl.types import LossTerms


def frossl_loss(
    z: Views,
    *,
    invariance_weight: float = 1.4,
    variance_weight: float = 1.0,
    normalize: Normalization = "centered",
    log: bool = True,
) -> LossTerms:
    """FroSSL over V ≥ 2 views, with ẑ the normalized projections and C_v = ẑ_vᵀẑ_v / tr(ẑ_vᵀẑ_v):

        L = b · Σ_v log‖C_v‖²_F  +  w · (1/N) Σ_{v<r} ‖ẑ_v − ẑ_r‖²_F
          = −b · Σ_v log r₂(C_v)  +  w · (V/N) Σ_v ‖ẑ_v − mean_r ẑ_r‖²_F

    z: (V, N, D), or V tensors (N, D). w is `invariance_weight`, b `variance_weight`; `log=False` takes
    ‖C_v‖²_F itself (the paper's ablation). r₂ is the effective rank, in [1, min(N, D)]; its mean over
    views is `extras["effective_rank"]`.

    The authors have used three normalizations; `PRESETS` names them by origin. Departures: lengths are
    bounded below, so that constant columns and zero rows give finite numbers where the originals give
    NaN; the trace carries gradient (the released code detaches it; with unit rows or columns it is
    constant, so the gradient is the same).

    Cost: time O(V·N·D·min(N, D)), memory O(V·min(N, D)² + V·N·D). No host synchronization.
    """
    z = as_views(z)
    with full_precision(z):
        V, N, _ = z.shape
        unit = normalized(z, normalize)
        spread = concentration(unit)
        return LossTerms.of(
            invariance=invariance_weight * (V / N) * distance_to_mean(unit),
            variance=variance_weight * (spread.log() if log else spread).sum(),
            extras={"effective_rank": spread.reciprocal().mean()},
        )


PRESETS: dict[str, Callable[[int], dict[str, Any]]] = {
    # what the paper trained with: one loss for two views; another, without the factor V, for more
    "paper": lambda V: (
        {"normalize": "centered", "invariance_weight": 1.4}
        if V == 2
        else {"normalize": "rows", "invariance_weight": 2 / V}
    ),
    # the authors' repository since August 2024 (weight of its CIFAR files; STL-10: 1.4, 10% ImageNet: 2)
    "released": lambda V: {"normalize": "columns", "invariance_weight": 1.0},
    # ours
    "default": lambda V: {"normalize": "centered", "invariance_weight": 1.4},
}
"""The arguments of `frossl_loss` for V views, by origin."""


class FroSSLLoss(nn.Module):
    """`frossl_loss` with its options stored."""

    def __init__(
        self,
        *,
        invariance_weight: float = 1.4,
        variance_weight: float = 1.0,
        normalize: Normalization = "centered",
        log: bool = True,
    ) -> None:
        super().__init__()
        if normalize not in get_args(Normalization):
            raise unknown("normalization", normalize, get_args(Normalization))
        self.options: dict[str, Any] = {
            "invariance_weight": invariance_weight,
            "variance_weight": variance_weight,
            "normalize": normalize,
            "log": log,
        }

    @classmethod
    def preset(cls, name: str = "default", *, views: int = 2) -> FroSSLLoss:
        """The loss as the paper, the authors' released code, or frossl uses it for this many views."""
        if name not in PRESETS:
            raise unknown("FroSSL preset", name, PRESETS)
        if views < 2:
            raise InputError(f"views = {views}; FroSSL compares views, so give at least 2")
        return cls(**PRESETS[name](views))

    def forward(self, z: Views) -> LossTerms:
        return frossl_loss(z, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
