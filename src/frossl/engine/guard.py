"""Guard training against steps that are not finite: they change neither weights nor state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from frossl.engine.async_read import read_async
from frossl.errors import BadStepError
from frossl.types import Clock, LossTerms

FAR = 1e30
"""Largest norm of weights that counts as finite; beyond it a run cannot recover."""


class _StepCheck(NamedTuple):
    """Numbers of a step to be checked; the last is the norm of the weights."""

    step: int
    names: list[str]
    read: Callable[[], Tensor]

    def good(self) -> bool:
        return bool(_finite(self.read()))

    def raise_if_bad(self) -> None:
        if not self.good():
            raise BadStepError(self.step, dict(zip(self.names, self.read().tolist(), strict=True)))


def _finite(numbers: Tensor) -> Tensor:
    return numbers.isfinite().all() & (numbers[-1] < FAR)


class Guard:
    """Check of loss, gradients, BatchNorm statistics and weights before each update.

    On the CPU a bad step ends in an error at once. On a device, where reading a number waits for all work in
    line, the update is masked there, and the numbers are read after the next step has been put in line. Steps
    after a bad one are masked too: what is found then is the state after the last good one.

    masked: work as on a device (by default, where there is one).
    """

    def __init__(self, device: torch.device, *, masked: bool | None = None) -> None:
        self.masked = device.type != "cpu" if masked is None else masked
        self._bad: Tensor | None = None
        self._before: dict[str, Tensor] = {}
        self._unread: _StepCheck | None = None

    def remember(self, networks: nn.Module) -> None:
        """Copy the state that a step changes before its check and, if masked, in `after_update`."""
        state = networks.state_dict() if self.masked else _statistics(networks)
        self._before = {name: tensor.clone() for name, tensor in state.items()}

    @torch.no_grad()
    def check(
        self, terms: LossTerms, networks: nn.Module, optimizer: torch.optim.Optimizer, clock: Clock
    ) -> None:
        """Check a step between backward pass and update: raise an error, or mask the update."""
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
        check = _StepCheck(clock.step, list(numbers), read_async(row))
        if not self.masked:
            check.raise_if_bad()
            return
        bad = ~_finite(row)
        self._bad = bad if self._bad is None else self._bad | bad
        optimizer.found_inf = self._bad.float()  # type: ignore[attr-defined]  # fused optimizers and LARS
        self.check_last()
        self._unread = check

    def good(self) -> bool:
        """Return whether the last step was finite; waits for the device."""
        return self._unread is None or self._unread.good()

    def check_last(self) -> None:
        """Raise an error if a step since the last check was not finite."""
        check, self._unread = self._unread, None
        if check is not None:
            check.raise_if_bad()

    @torch.no_grad()
    def undo(self, networks: nn.Module) -> None:
        """Undo the changes of a masked step that was not finite."""
        if self._bad is not None:
            for name, tensor in networks.state_dict().items():
                if name in self._before:  # running state appears with the first step
                    tensor.copy_(torch.where(self._bad, self._before[name], tensor))

    @torch.no_grad()
    def restore(self, networks: nn.Module) -> None:
        """Restore the state before a step that raised an error."""
        state = networks.state_dict()
        for name, tensor in self._before.items():
            state[name].copy_(tensor)


def _statistics(networks: nn.Module) -> dict[str, Tensor]:
    """Return BatchNorm's running statistics by state-dict name; the forward pass changes them."""
    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for prefix, module in networks.named_modules()
        if isinstance(module, _BatchNorm)
        for name, buffer in module.named_buffers(recurse=False)
    }
