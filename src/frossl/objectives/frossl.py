"""FroSSL (Skean et al., ECCV 2024, arXiv 2310.02903)."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Preset:
    """Normalization and invariance weight for V views."""

    normalize: Normalization
    invariance_weight: float
    per_view: bool = False
    """The weight is divided by V: the authors' V-view loss had no factor V."""

    def weight(self, views: int) -> float:
        return self.invariance_weight / views if self.per_view else self.invariance_weight


PRESETS: dict[str, dict[str, Preset]] = {
    # what the paper trained with: one loss for two views, another for more
    "paper": {"two": Preset("centered", 1.4), "more": Preset("rows", 2.0, per_view=True)},
    # the authors' repository since August 2024 (weight of its CIFAR files; STL-10: 1.4, 10% ImageNet: 2)
    "released": {"two": Preset("columns", 1.0), "more": Preset("columns", 1.0)},
    # ours
    "default": {"two": Preset("centered", 1.4), "more": Preset("centered", 1.4)},
}


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
        self.invariance_weight = invariance_weight
        self.variance_weight = variance_weight
        self.normalize = normalize
        self.log = log

    @classmethod
    def preset(cls, name: str = "default", *, views: int = 2) -> FroSSLLoss:
        """The loss as the paper, the authors' released code, or frossl uses it for this many views."""
        if name not in PRESETS:
            raise unknown("FroSSL preset", name, PRESETS)
        if views < 2:
            raise InputError(f"views = {views}; FroSSL compares views, so give at least 2")
        chosen = PRESETS[name]["two" if views == 2 else "more"]
        return cls(normalize=chosen.normalize, invariance_weight=chosen.weight(views))

    def forward(self, z: Views) -> LossTerms:
        return frossl_loss(
            z,
            invariance_weight=self.invariance_weight,
            variance_weight=self.variance_weight,
            normalize=self.normalize,
            log=self.log,
        )

    def extra_repr(self) -> str:
        return (
            f"invariance_weight={self.invariance_weight}, variance_weight={self.variance_weight}, "
            f"normalize={self.normalize!r}, log={self.log}"
        )
