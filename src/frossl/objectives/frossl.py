"""FroSSL (Skean et al., ECCV 2024, arXiv 2310.02903)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from frossl.config import Positive, Weight
from frossl.errors import ConfigError
from frossl.objectives.closed_form import fused_frossl
from frossl.objectives.contract import Objective, Preset, Views, as_views, objective_of_views, transformed
from frossl.objectives.criteria import Criteria
from frossl.objectives.spectra import renyi_variance
from frossl.objectives.terms import Normalization, distance_to_mean
from frossl.objectives.terms import normalize as normalized
from frossl.types import LossTerms


@objective_of_views
def frossl_loss(
    z: Views,
    *,
    invariance_weight: Weight = 1.4,
    variance_weight: Weight = 1.0,
    normalize: Normalization = "centered",
    log: bool = True,
    alpha: Positive = 2.0,
) -> LossTerms:
    """Compute the FroSSL loss: the Frobenius norms of the covariances of views, and the distance of views.

        L = b · Σ_v log‖C_v‖²_F  +  w · (1/N) Σ_{v<r} ‖ẑ_v − ẑ_r‖²_F
          = −b · Σ_v log r₂(C_v)  +  w · (V/N) Σ_v ‖ẑ_v − mean_r ẑ_r‖²_F

    ẑ is z normalized and C_v = ẑ_vᵀẑ_v / tr(ẑ_vᵀẑ_v). r₂ is the effective rank, in [1, min(N, D)]; its mean
    over views is `extras["effective_rank"]`.

    Departures: lengths are bounded below, so that constant columns and zero rows give finite values where
    the originals give NaN. The authors have used three normalizations; `PRESETS` names them by origin.

    Cost: time V·N·D·min(N, D), memory V·N·D. Two matrix products a view, backward pass included, and no host
    synchronization (α = 2, eager mode). When compiled, and for second derivatives, autograd's three.

    Args:
        z: Projections (V, N, D), or V tensors (N, D); a list saves a copy.
        invariance_weight: Weight w of the distance of views.
        variance_weight: Weight b of the covariance term.
        normalize: Normalization of z; see `terms.normalize`.
        log: Whether to take the logarithm; False uses ‖C_v‖²_F itself (the paper's ablation).
        alpha: Order α of the entropy: −S_α(C_v) replaces log‖C_v‖²_F = −S₂(C_v), and the rank is exp(S_α).
            With 1 and unit rows the variance term is that of I-VNE; see `renyi_variance`.
    """
    _check_order(alpha, log)
    tensors = (z,) if isinstance(z, Tensor) else z
    if alpha == 2 and not torch.compiler.is_compiling() and not transformed(*tensors):
        total, invariance, variance, rank = fused_frossl(
            z,
            invariance_weight=invariance_weight,
            variance_weight=variance_weight,
            normalize=normalize,
            log=log,
        )
        return LossTerms(total, {"invariance": invariance, "variance": variance}, {"effective_rank": rank})
    unit = normalized(as_views(z), normalize)
    entropy = -renyi_variance(unit, alpha)
    spread = -entropy if log else (-entropy).exp()
    return LossTerms.of(
        invariance=invariance_weight * (len(unit) / unit.shape[1]) * distance_to_mean(unit),
        variance=variance_weight * spread.sum(),
        extras={"effective_rank": entropy.exp().mean()},
    )


PRESETS: dict[str, Preset] = {
    # the losses of the paper's runs: one for two views; another, without the factor V, for more
    "paper": lambda V: (
        {"normalize": "centered", "invariance_weight": 1.4}
        if V == 2
        else {"normalize": "rows", "invariance_weight": 2 / V}
    ),
    # the authors' repository since August 2024 (weight of its CIFAR files; STL-10: 1.4, 10% ImageNet: 2)
    "released": lambda V: {"normalize": "columns", "invariance_weight": 1.0},
    # V variance terms are balanced by V(V − 1)/2 distances, so the weight keeps the ratio of two views
    "default": lambda V: {"normalize": "centered", "invariance_weight": 1.4 / (V - 1)},
}
"""Arguments of `frossl_loss` for V views, by origin."""


def _check_order(alpha: float, log: bool) -> None:
    if not log and alpha != 2:
        raise ConfigError("alpha", alpha, "with log=False the loss is defined for alpha = 2")


class FroSSLLoss(Objective):
    """Module of `frossl_loss`, with its options."""

    function = staticmethod(frossl_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="no",
        eigenvalues=True,
        factorization="none",
        exponents=(1, 1, 2),
        remark="rotation invariant with unit rows; not with unit columns, against the paper's table",
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _check_order(self.options["alpha"], self.options["log"])
