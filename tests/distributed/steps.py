"""What one process, or one of many, computes: run by the tests themselves and by `worker.py`."""

from __future__ import annotations

import hashlib
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from frossl import engine
from frossl.config import Config, Data, Network, Objective, Optim, Train, ViewSpec
from frossl.data import open_dataset
from frossl.engine.launch import launch
from frossl.engine.step import forward_backward, train_step
from frossl.methods import METHODS
from tests.support.runs import SMALL_OPTIONS, USUAL

BATCH = 26  # 13 + 13, or 9 + 9 + 8
SINGLE = ("frossl", "vicreg", "simclr")
STEPS = 5


def config(name: str, *, precision: str, micro: int | None) -> Config:
    options = {**SMALL_OPTIONS.get(name, {}), **({"sub_batch": 13} if name == "wmse" else {})}
    return Config(
        data=Data("cifar10-mini"),
        network=Network(
            "resnet18", width=0.125, stages=2, projector_hidden=16, projector_out=8, projector_layers=2
        ),
        objective=Objective(name, options),
        optim=Optim("sgd", base_lr=0.1) if precision == "64-true" else Optim("adamw", base_lr=0.01),
        train=Train(epochs=1, batch_size=BATCH, micro_batch_size=micro, precision=precision, device="cpu"),
        views=(ViewSpec(size=12, count=3, **USUAL),),
    )


def without_batchnorm(networks: nn.Module) -> nn.Module:
    """BatchNorm mixes images, so it sees a process's share only; a norm of each image does not."""
    for module in list(networks.modules()):
        for name, child in module.named_children():
            if isinstance(child, _BatchNorm):
                norm = nn.GroupNorm(1, child.num_features)
                setattr(module, name, norm.requires_grad_(child.weight.requires_grad))
    return networks


DATA = open_dataset("cifar10-mini")


def state_of(given: Config) -> engine.State:
    data = DATA
    dtype = torch.float64 if given.train.precision == "64-true" else torch.float32
    real = engine.build_method

    def plain(config: Config, **options: Any) -> nn.Module:
        return without_batchnorm(real(config, **options)).to(dtype)

    with patch("frossl.engine.build.build_method", plain):
        fabric = launch(given.train)
        state = engine.build(engine.settle(given, data), data, fabric)
    augment = state.augment
    state.augment = lambda batch, clock: [view.to(dtype) for view in augment(batch, clock)]
    return state


def measure(name: str, *, precision: str, micro: int | None) -> dict[str, Any]:
    """Loss and gradients of the first and the third step, and the bits of everything after the fifth."""
    state = state_of(config(name, precision=precision, micro=micro))
    found: dict[str, Any] = {}
    for step in range(STEPS):
        clock = state.loader.clock(step)
        state.set_lr(clock)
        batch = state.loader.read(state.loader.share(step))
        if step in (0, 2):
            terms, _ = forward_backward(state.augment(batch, clock), state, clock)
            gradients = {
                key: p.grad.clone() for key, p in state.method.named_parameters() if p.grad is not None
            }
            found[f"step {step}"] = {"loss": terms.total.detach(), **gradients}
            state.optimizer.zero_grad()
        train_step(batch, state, clock)
    found["ids"] = state.loader.share(0)
    found["bits"] = digest(state.method.state_dict())
    return found


def digest(tensors: dict[str, Tensor]) -> str:
    content = b"".join(key.encode() + value.numpy().tobytes() for key, value in sorted(tensors.items()))
    return hashlib.sha256(content).hexdigest()


WHOLE = [*((name, "64-true", None) for name in METHODS), *((name, "32-true", None) for name in SINGLE)]
MICRO = [(name, "64-true", 4) for name in METHODS]
UNEVEN = [("frossl", "64-true", 8)]  # of shares of 9, 9 and 8
CASES = {1: WHOLE + MICRO, 2: WHOLE + MICRO, 3: WHOLE + UNEVEN}
"""What is measured with one, two and three processes."""


def measure_all(processes: int) -> dict[tuple[str, str, int | None], dict[str, Any]]:
    return {
        case: measure(name, precision=precision, micro=micro)
        for case in CASES[processes]
        for name, precision, micro in [case]
    }
