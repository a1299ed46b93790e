"""Compare the gradient of two processes with that of one: `python -m frossl.health.two_processes cpu 60`.

`frossl doctor --self-test` runs this. The processes are launched as in training; the number is a time limit
in seconds, after which both are ended.
"""

from __future__ import annotations

import copy
import json
import signal
import sys
from typing import get_args

import torch
import torch.distributed as dist
from torch import nn

from frossl.config import Device, Train
from frossl.engine.gather import all_gather_object, gather, rank
from frossl.engine.launch import launch
from frossl.objectives import OBJECTIVES

GATHERED_OBJECTIVES = ("frossl", "vicreg", "simclr")
"""Objectives that are compared: a spectral, a covariance and a contrastive one."""
V, N, F, D = 3, 13, 6, 5
"""Views, images, inputs and outputs; an odd number of images, so that the processes have 7 and 6."""


def largest_error(device: Device) -> float:
    """Return the largest relative error of the gradient of two processes with half of the images each.

    It is compared in float64 with the gradient of one process with all images, relative to its norm.
    """
    fabric = launch(
        Train(device=device, devices=2, precision="32-true")
    )  # this precision does not convert float64
    images = torch.randn(V, N, F, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images = images.to(fabric.device)
    torch.manual_seed(0)
    errors: list[float] = []
    for name in GATHERED_OBJECTIVES:
        loss = OBJECTIVES[name].function
        single = nn.Linear(F, D, dtype=torch.float64, device=fabric.device)
        shared = fabric.setup_module(copy.deepcopy(single))
        loss(single(images)).total.backward()
        local = images.tensor_split(2, dim=1)[rank()]
        fabric.backward(loss(gather(shared(local), images=N)).total)
        expected, found = single.weight.grad, shared.weight.grad
        assert expected is not None
        errors.append(float((found - expected).norm() / expected.norm()))
    return max(error for each in all_gather_object(errors) for error in each)


if __name__ == "__main__":
    kind, limit = sys.argv[1:]
    if hasattr(signal, "alarm"):
        signal.alarm(int(limit))  # the parent may have been killed and cannot enforce the limit
    (device,) = (known for known in get_args(Device) if known == kind)
    error = largest_error(device)
    if rank() == 0:
        sys.stdout.write(json.dumps({"error": error, "backend": dist.get_backend()}) + "\n")
