"""MoCo's InfoNCE against a queue (He et al., CVPR 2020, arXiv 1911.05722; v2: arXiv 2003.04297)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from frossl.config import Count, Positive
from frossl.objectives.contract import Objective, Preset, Views, as_target, checked_option, objective
from frossl.objectives.criteria import Criteria
from frossl.objectives.terms import unit
from frossl.types import LossTerms


@objective
def moco_loss(
    z: Tensor,
    *,
    queue: Tensor,
    target: Views | None = None,
    temperature: Positive = 0.2,
    symmetric: bool = False,
) -> LossTerms:
    """Compute the MoCo loss: InfoNCE of each query against its key and a queue of older keys.

        L = mean_{v<r} mean_n −log( e^{q_v·k_r/τ} / (e^{q_v·k_r/τ} + Σ_j e^{q_v·Q_j/τ}) )

    q are the unit rows of z, k those of the target. State: `keys`, the rows to enqueue (by `MoCoLoss`).

    Departures: none at V = 2; the queue is read before the new keys enter it.

    Cost: time V·N·Q·D + V²·N·D, memory V·N·Q.

    Args:
        z: Projections (V, N, D), or V tensors (N, D).
        queue: Older keys Q, unit rows (Q, D).
        target: Projections (V, N, D) of the teacher, used without gradient; z itself if None.
        temperature: Temperature τ (0.07 in v1).
        symmetric: Whether to average over all ordered pairs v ≠ r, as MoCo v2+ and v3 do.
    """
    V, _, D = z.shape
    if queue.ndim != 2 or queue.shape[1] != D:
        raise ValueError(f"queue has shape {tuple(queue.shape)}; expected (Q, {D}) as z has {tuple(z.shape)}")
    keys = unit(as_target(target, z))
    queries = unit(z)
    positive = torch.einsum("vnd,rnd->vrn", queries, keys) / temperature
    negative = (queries @ queue.detach().to(z).mT / temperature).logsumexp(-1)  # (V, N)
    pairs = z.new_ones(V, V).triu(1)
    weight = (pairs + pairs.T if symmetric else pairs) / (V * (V - 1) / (1 if symmetric else 2))
    spread = torch.logaddexp(positive, negative[:, None])
    return LossTerms.of(
        invariance=-(weight * positive.mean(-1)).sum(),
        variance=(weight * spread.mean(-1)).sum(),
        state={"keys": keys[0 if symmetric else 1 :].reshape(-1, D)},
    )


PRESETS: dict[str, Preset] = {
    "default": lambda V: {},
    "v1": lambda V: {"temperature": 0.07},
    "v2": lambda V: {},
    "v2+": lambda V: {"symmetric": True},
}


class MoCoLoss(Objective):
    """Module of `moco_loss`, with its options and the queue: first in, first out.

    Args:
        queue_size: Number of keys in the queue, which starts as random unit rows, equal in all processes.
        **options: Options of `moco_loss`.
    """

    function = staticmethod(moco_loss)
    presets = PRESETS
    criteria = Criteria(
        rotation="yes",
        eigenvalues=False,
        factorization="none",
        exponents=(1, 1, 1),
        remark="times the length of the queue",
    )
    state = ("queue", "oldest")
    queue: Tensor | None
    oldest: Tensor | None

    def __init__(self, *, queue_size: Count = 65536, **options: Any) -> None:
        super().__init__(**options)
        self.queue_size: int = checked_option(type(self).__init__, "queue_size", queue_size)

    def running(self, D: int) -> dict[str, Tensor | None]:
        return {"queue": _initial_queue(self.queue_size, D) if self.queue is None else self.queue}

    @torch.no_grad()
    def keep(self, state: Mapping[str, Tensor]) -> None:
        """Replace the oldest keys of the queue by those that the loss of a step returned."""
        keys = state["keys"]
        if self.queue is None or self.oldest is None:
            self.queue = _initial_queue(self.queue_size, keys.shape[1])
            self.oldest = torch.zeros((), dtype=torch.int64)
        queue, oldest = self.queue.to(keys.device), self.oldest.to(keys.device)
        keys = keys[-len(queue) :]
        places = (oldest + torch.arange(len(keys), device=keys.device)) % len(queue)
        # a new tensor, as the graph of this step may still read the old one
        self.queue = queue.index_copy(0, places, keys.to(queue))
        self.oldest = (oldest + len(keys)) % len(queue)


@functools.lru_cache(maxsize=1)
def _initial_queue(size: int, D: int) -> Tensor:
    return unit(torch.randn(size, D, generator=torch.Generator().manual_seed(0)))
