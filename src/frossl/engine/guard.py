"""A step that is not finite changes neither weights nor state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from frossl.engine.later import later
from frossl.errors import BadStepError
from frossl.types import Clock, LossTerms

FAR = 1e30
"""Weights of this size are lost, and a step later not even finite."""


class _Verdict(NamedTuple):
    """The numbers of a step; the last is the size of the weights."""

    step: int
    names: list[str]
    read: Callable[[], Tensor]

    def good(self) -> bool:
        return bool(_finite(self.read()))

    def check(self) -> None:
        if not self.good():
            raise BadStepError(self.step, dict(zip(self.names, self.read().tolist(), strict=True)))


def _finite(numbers: Tensor) -> Tensor:
    return numbers.isfinite().all() & (numbers[-1] < FAR)


class Guard:
    """Looks at the loss, the gradient, BatchNorm's statistics and the weights of each step before the update.

    On the CPU a bad step ends in an error at once. On a device, where reading a number waits for all work in
    line, the update is masked there, and the numbers are read after the next step has been put in line. Steps
    after a bad one are masked too: what is found then is the state after the last good one.

    masked: work as on a device (by default, where there is one).
    """

    def __init__(self, device: torch.device, *, masked: bool | None = None) -> None:
        self.masked = device.type != "cpu" if masked is None else masked
        self._bad: Tensor | None = None
        self._before: dict[str, Tensor] = {}
        self._unread: _Verdict | None = None

    def remember(self, networks: nn.Module) -> None:
        """What a step changes before it is judged, and, masked, what `after_update` changes."""
        state = networks.state_dict() if self.masked else _statistics(networks)
        self._before = {name: tensor.clone() for name, tensor in state.items()}

    @torch.no_grad()
    def judge(
        self, terms: LossTerms, networks: nn.Module, optimizer: torch.optim.Optimizer, clock: Clock
    ) -> None:
        """Between backward pass and update: an error, or a mask for what follows."""
        weights = [p for p in networks.parameters() if p.grad is not None]
        statistics = [s for s in _statistics(networks).values() if s.is_floating_point()]
        growth = max(1.0, *(group["lr"] * group["weight_decay"] for group in optimizer.param_groups))
        numbers = {
            **terms.parts,
            "loss": terms.total,
            "gradient": nn.utils.get_total_norm([p.grad for p in weights if p.grad is not None]),
            "statistics": nn.utils.get_total_norm(statistics, torch.inf),
            "weights": nn.utils.get_total_norm(weights, torch.inf) * growth,
        }
        device = terms.total.device  # the norm of no tensor at all lies on the CPU
        row = torch.stack([number.detach().to(device, torch.float32) for number in numbers.values()])
        verdict = _Verdict(clock.step, list(numbers), later(row))
        if not self.masked:
            verdict.check()
            return
        bad = ~_finite(row)
        self._bad = bad if self._bad is None else self._bad | bad
        optimizer.found_inf = self._bad.float()  # type: ignore[attr-defined]  # fused optimizers and LARS
        self.look_back()
        self._unread = verdict

    def good(self) -> bool:
        """Was the last step finite? Waits for it."""
        return self._unread is None or self._unread.good()

    def look_back(self) -> None:
        """An error if a step was bad that nobody has looked at yet."""
        verdict, self._unread = self._unread, None
        if verdict is not None:
            verdict.check()

    @torch.no_grad()
    def undo(self, networks: nn.Module) -> None:
        """Masked, after a step: put back what it has changed, if it was bad."""
        if self._bad is not None:
            for name, tensor in networks.state_dict().items():
                if name in self._before:  # running state appears with the first step
                    tensor.copy_(torch.where(self._bad, self._before[name], tensor))

    @torch.no_grad()
    def restore(self, networks: nn.Module) -> None:
        """After an error: put back what a step had changed before it."""
        state = networks.state_dict()
        for name, tensor in self._before.items():
            state[name].copy_(tensor)


def _statistics(networks: nn.Module) -> dict[str, Tensor]:
    """What BatchNorm keeps, by the names of the state dict: it moves in the forward pass."""
    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for prefix, module in networks.named_modules()
        if isinstance(module, _BatchNorm)
        for name, buffer in module.named_buffers(recurse=False)
    }
