"""LARS (You, Gitman, Ginsburg 2017) as the paper's authors run it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class LARS(torch.optim.Optimizer):
    """Momentum SGD whose rate is scaled per matrix by trust = η‖p‖ / (‖g‖ + λ‖p‖ + 1e-8).

        d = (g + λp) · min(trust / lr, 1)       vectors (biases, norm layers): d = g
        m ← μm + d
        p ← p − lr · m

    With `clip=False`, trust itself multiplies. λ is `weight_decay`, η `trust`, μ `momentum`. A matrix whose
    gradient is zero has d = 0: what the loss does not reach does not decay. Where p is zero, d = g.

    found_inf: as in torch's fused optimizers, a step leaves everything as it is where this tensor is 1.
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.02,
        clip: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "clip": clip,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d = _adapted(p, p.grad, group) if p.ndim > 1 else p.grad
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"]
                if self.found_inf is None:
                    m.mul_(group["momentum"]).add_(d)
                    p.add_(m, alpha=-group["lr"])
                else:
                    masked = self.found_inf.bool()
                    m.copy_(torch.where(masked, m, m * group["momentum"] + d))
                    p.copy_(torch.where(masked, p, p - group["lr"] * m))
        return loss


def _adapted(p: Tensor, g: Tensor, group: dict[str, Any]) -> Tensor:
    length, slope = p.norm(), g.norm()
    trust = group["trust"] * length / (slope + group["weight_decay"] * length + 1e-8)
    if group["clip"]:
        trust = (trust / group["lr"]).clamp_max(1)
    trust = torch.where(length > 0, trust, 1.0) * (slope > 0)  # no host wait
    adapted: Tensor = (g + group["weight_decay"] * p) * trust
    return adapted
