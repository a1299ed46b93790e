"""Whose gradient on two processes is that of one process on the joined batch?

    python -m benchmarks.gather

Two processes on loopback, each with its own half of a batch, one linear layer, gradients averaged over
processes as DDP does: frossl's objectives through `engine.gather`, and Lightly's losses, with their own
gathering where they offer it. Reported: cosine and ratio of lengths of the layer's gradient to that of one
process. The last line printed is one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

import frossl.compat  # noqa: F401  before Lightly, which imports torchvision
from frossl.engine.gather import gather
from frossl.objectives import BarlowTwinsLoss, FroSSLLoss

N, D = 64, 32


def losses(*, alone: bool) -> dict[str, Callable[[Tensor], Tensor]]:
    """From the projections (2, n, D) of a process to its loss."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightly.loss import BarlowTwinsLoss as LightlyBarlow
        from lightly.loss import FroSSLLoss as LightlyFroSSL

    frossl, barlow = FroSSLLoss.preset("released"), BarlowTwinsLoss()
    theirs, other = LightlyBarlow(gather_distributed=not alone), LightlyFroSSL()
    return {
        "FroSSL, frossl": lambda z: frossl(gather(z, images=N)).total,
        "Barlow Twins, frossl": lambda z: barlow(gather(z, images=N)).total,
        "FroSSL, Lightly 1.6 (cannot gather)": lambda z: other(list(z)),
        "Barlow Twins, Lightly 1.6, gather_distributed": lambda z: theirs(*z),
    }


def gradients(images: Tensor, *, alone: bool) -> dict[str, Tensor]:
    layer = torch.randn(16, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = {}
    for name, loss in losses(alone=alone).items():
        weight = layer.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(images @ weight), weight)
        if not alone:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
        found[name] = gradient
    return found


def main() -> None:
    images = torch.randn(2, N, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images[1] += 0.5 * images[0] + torch.linspace(0, 3, N, dtype=torch.float64)[:, None]
    if "--worker" not in sys.argv:
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        subprocess.run([sys.executable, *command, "-m", "benchmarks.gather", "--worker"], check=True)
        return
    expected = gradients(images, alone=True)
    dist.init_process_group("gloo")
    found = gradients(images.chunk(2, dim=1)[dist.get_rank()], alone=False)
    if dist.get_rank() == 0:
        print("| | cosine | length |\n|---|---|---|")
        rows = {}
        for name, gradient in found.items():
            cosine = torch.cosine_similarity(gradient.flatten(), expected[name].flatten(), dim=0).item()
            length = (gradient.norm() / expected[name].norm()).item()
            rows[name] = {"cosine": cosine, "length": length}
            print(f"| {name} | {cosine:.6f} | {length:.6f} |")
        print(json.dumps(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
