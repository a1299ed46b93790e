"""TiCo (Zhu et al., 2022, arXiv 2206.10698)."""

from __future__ import annotations

from torch import Tensor

from frossl.config import Inertia, Weight
from frossl.objectives.contract import Objective, Preset, Views, as_target, objective, past_state
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import sum_of_later, unit
from frossl.types import LossTerms


@objective
def tico_loss(
    z: Tensor,
    *,
    target: Views | None = None,
    covariance: Tensor | None = None,
    invariance_weight: Weight = 1.0,
    covariance_weight: Weight = 8.0,
    momentum: Inertia = 0.9,
    symmetric: bool = False,
    detach: bool = False,
) -> LossTerms:
    """Compute the TiCo loss: the cosine with the teacher, and a penalty on large running covariances.

        L = −a · mean_{v<r} mean_n u_v·t_r  +  c · mean_v mean_n u_vᵀ C′ u_v,
        C′ = β C + (1 − β) mean_v u_vᵀu_v / N,   u = unit rows of z, t = unit rows of the target

    u_v are the online views: all but the last. State: `covariance` C.

    Departures: none at V = 2. C′ includes the current batch with its gradient.

    Cost: time V·N·D², memory D².

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        target: Projections (V, N, D) of the teacher, used without gradient; z itself if None.
        covariance: Running covariance C (D, D); 0 if None.
        invariance_weight: Weight a of the cosine.
        covariance_weight: Weight c of the penalty (ρ: 8 in the paper, 20 in the code that is in use).
        momentum: Weight β of the past covariance.
        symmetric: Whether to use all views and all ordered pairs v ≠ r.
        detach: Whether C′ includes the current batch without gradient, as in Lightly (whose loss also adds
            the constant 1).
    """
    D = z.shape[-1]
    keys = unit(as_target(target, z))
    online = unit(z if symmetric else z[:-1])
    rows = online.reshape(-1, D)
    source = rows.detach() if detach else rows
    past = past_state("covariance", covariance, z.new_zeros(D, D))
    new = momentum * past + (1 - momentum) / len(rows) * (source.mT @ source)
    return LossTerms.of(
        invariance=-invariance_weight * _agreement(online, keys, symmetric=symmetric),
        covariance=covariance_weight * ((rows @ new) * rows).sum() / len(rows),
        state={"covariance": new},
    )


def _agreement(online: Tensor, keys: Tensor, *, symmetric: bool) -> Tensor:
    """Return the mean of u_v·t_r over images and pairs v < r, or v ≠ r, at a cost linear in V."""
    V, N, _ = keys.shape
    if symmetric:
        partners = keys.sum(0) - keys
        return (online * partners).sum() / (N * V * (V - 1))
    return (online * sum_of_later(keys)).sum() / (N * V * (V - 1) / 2)


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "paper": lambda V: {},
    "released": lambda V: {"covariance_weight": 20.0},
    "lightly": lambda V: {"detach": True},
}


class TiCoLoss(Objective):
    """Module of `tico_loss`, with its options and the running covariance."""

    function = staticmethod(tico_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=True,
        factorization="none",
        exponents=(1, 1, 2),
        remark="with fresh state, the online views' spectrum",
    )
    state = ("covariance",)
