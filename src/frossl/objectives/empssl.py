"""EMP-SSL's total coding rate (Tong et al., 2023, arXiv 2304.03977)."""

from __future__ import annotations

import torch
from torch import Tensor

from frossl.config import Positive, Weight
from frossl.objectives.contract import Objective, Preset, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.spectra import log_det
from frossl.objectives.terms import effective_rank, gram, unit
from frossl.types import LossTerms


@objective
def empssl_loss(
    z: Tensor, *, invariance_weight: Weight = 200.0, variance_weight: Weight = 1.0, eps: Positive = 0.2
) -> LossTerms:
    """Compute the EMP-SSL loss: the cosine of each patch with the mean patch, and its total coding rate.

        L = −a · mean_v mean_n cos(u_v, ū)  −  b · mean_v ½ log det(I + D/(N ε) · u_vᵀu_v)

    u are unit rows; V is the number of patches (100 in the paper).

    Departures: none. The determinant is that of the smaller of u_vᵀu_v and u_vu_vᵀ. Lightly's loss has the
    opposite sign of the second term: its minimum is collapse.

    Cost: time V·(N·D·min(N, D) + min(N, D)³), memory V·min(N, D)².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        invariance_weight: Weight a of the cosine.
        variance_weight: Weight b of the coding rate.
        eps: Distortion ε of the coding rate.
    """
    V, N, D = z.shape
    u = unit(z)
    inner = gram(u)
    identity = torch.eye(inner.shape[-1], dtype=z.dtype, device=z.device)
    rate = log_det(identity + D / (N * eps) * inner) / 2
    return LossTerms.of(
        invariance=-invariance_weight * (u * unit(u.mean(0))).sum() / (V * N),
        variance=-variance_weight * rate.mean(),
        extras={"effective_rank": effective_rank(inner)},
    )


PRESETS: dict[str, Preset] = {"default": lambda V: {}, "released": lambda V: {}}


class EMPSSLLoss(Objective):
    """Module of `empssl_loss`, with its options."""

    function = staticmethod(empssl_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=True,
        factorization="Cholesky",
        exponents=(1, 1, 2),
        remark="min(N, D)³ besides",
    )
