"""LARS (You, Gitman, Ginsburg 2017) as used by the authors of the FroSSL paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class LARS(torch.optim.Optimizer):
    """SGD with momentum, its learning rate scaled for each matrix by trust = η‖p‖ / (‖g‖ + λ‖p‖ + 1e-8).

        d = (g + λp) · min(trust / lr, 1)       vectors (biases, norm layers): d = g
        m ← μm + d
        p ← p − lr · m

    A matrix whose gradient is zero has d = 0: weights that the loss does not depend on do not decay. Where p
    is zero, d = g.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate.
        momentum: μ.
        weight_decay: λ.
        trust: η.
        clip: Whether to use min(trust / lr, 1) as the factor; False uses trust itself.
    """

    found_inf: Tensor | None = None
    """Tensor that, where it is 1, makes a step change nothing, as in torch's fused optimizers."""

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
        """Update all parameters; return the loss of `closure`, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d = _scaled_gradient(p, p.grad, group) if p.ndim > 1 else p.grad
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


def _scaled_gradient(p: Tensor, g: Tensor, group: dict[str, Any]) -> Tensor:
    weight_norm, grad_norm = p.norm(), g.norm()
    trust = group["trust"] * weight_norm / (grad_norm + group["weight_decay"] * weight_norm + 1e-8)
    if group["clip"]:
        trust = (trust / group["lr"]).clamp_max(1)
    trust = torch.where(weight_norm > 0, trust, 1.0) * (grad_norm > 0)  # without a host synchronization
    scaled: Tensor = (g + group["weight_decay"] * p) * trust
    return scaled
