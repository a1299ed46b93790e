"""Do two processes have the gradient of one? `python -m frossl.engine.pair cpu 60` starts both and says so.

They are started as those of a run are. `frossl doctor --test` runs this; the number is a limit in seconds,
after which neither is left.
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
from frossl.engine.gather import everyones, gather, rank
from frossl.engine.launch import launch
from frossl.objectives import OBJECTIVES

OBJECTIVES_GATHERED = ("frossl", "vicreg", "simclr")
V, N, F, D = 3, 13, 6, 5  # an odd number of images: shares of 7 and 6


def largest_error(device: Device) -> float:
    """Of the weights' gradient, relative to its length: of two processes with half of the images each,
    against one with all of them, in float64."""
    fabric = launch(Train(device=device, devices=2, precision="32-true"))  # which leaves float64 alone
    images = torch.randn(V, N, F, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images = images.to(fabric.device)
    torch.manual_seed(0)
    errors: list[float] = []
    for name in OBJECTIVES_GATHERED:
        loss = OBJECTIVES[name].function
        alone = nn.Linear(F, D, dtype=torch.float64, device=fabric.device)
        shared = fabric.setup_module(copy.deepcopy(alone))
        loss(alone(images)).total.backward()
        mine = images.tensor_split(2, dim=1)[rank()]
        fabric.backward(loss(gather(shared(mine), images=N)).total)
        expected, found = alone.weight.grad, shared.weight.grad
        assert expected is not None
        errors.append(float((found - expected).norm() / expected.norm()))
    return max(error for each in everyones(errors) for error in each)


if __name__ == "__main__":
    kind, limit = sys.argv[1:]
    if hasattr(signal, "alarm"):
        signal.alarm(int(limit))  # nobody may be there any more who would end this
    (device,) = (known for known in get_args(Device) if known == kind)
    error = largest_error(device)
    if rank() == 0:
        sys.stdout.write(json.dumps({"error": error, "backend": dist.get_backend()}) + "\n")
