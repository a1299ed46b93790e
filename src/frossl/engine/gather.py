"""Exchange tensors of a step between processes; the only collectives of a step are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from frossl.engine.async_read import read_async

T = TypeVar("T")


def processes() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


class Gathered(Mapping[str, Tensor]):
    """Tensors (V, N, ·) of this process, read as those of the global batch, in float32 or wider.

    A tensor is exchanged when it is first read, so what no objective looks at stays where it is. Every
    process must read the same names in the same order.
    """

    def __init__(self, tensors: Mapping[str, Tensor], *, images: int) -> None:
        """Wrap the tensors of this process; `images` is the size of the global batch."""
        self._tensors, self._images = tensors, images
        self._whole: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._whole:
            self._whole[name] = gather(self._tensors[name], images=self._images)
        return self._whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def gather(x: Tensor, *, images: int) -> Tensor:
    """Concatenate the (V, n, ·) of every process to (V, N, ·); the backward pass sums over processes.

    Every process computes the same loss of the global batch, so that sum is the gradient times the number of
    processes, which the mean over processes of the weights' gradients (DDP's) takes back: no factor stands
    on the loss.
    """
    if processes() == 1:
        return _widened(x)
    whole: Tensor = _Gather.apply(x, images)
    return whole


def _widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, images: int) -> Tensor:
        shares = [len(part) for part in torch.empty(images).tensor_split(processes())]
        if x.shape[1] != shares[rank()]:
            raise ValueError(f"process {rank()} has {x.shape[1]} rows; its share of {images} is another")
        before = sum(shares[: rank()])
        ctx.dtype, ctx.rows = x.dtype, slice(before, before + x.shape[1])
        # gloo and NCCL gather equal shapes: shares differ by one row at most
        padding = (0, 0) * (x.ndim - 2) + (0, shares[0] - x.shape[1])
        mine = F.pad(x, padding).contiguous()
        parts = [torch.empty_like(mine) for _ in shares]
        dist.all_gather(parts, mine)
        return _widened(torch.cat([part[:, :share] for part, share in zip(parts, shares, strict=True)], 1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[:, ctx.rows].to(ctx.dtype), None


@torch.no_grad()
def average_statistics(networks: nn.Module) -> None:
    """Average BatchNorm's running statistics over processes, as each has seen its share of the batch."""
    if processes() == 1:
        return
    kept = [
        statistic
        for module in networks.modules()
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm) and module.training
        for statistic in (module.running_mean, module.running_var)
        if statistic is not None
    ]
    if kept:
        flat = torch.cat(kept)
        dist.all_reduce(flat)
        flat /= processes()
        for statistic, mean in zip(kept, flat.split([len(s) for s in kept]), strict=True):
            statistic.copy_(mean)


def largest(number: Tensor) -> Callable[[], Tensor]:
    """Start computing the maximum over processes; the returned function waits for it."""
    if number.device.type == "cuda":
        dist.all_reduce(number, dist.ReduceOp.MAX)  # put in line: nobody waits here
        return read_async(number)
    work = dist.all_reduce(number, dist.ReduceOp.MAX, async_op=True)

    def read() -> Tensor:
        work.wait()
        return number

    return read


def all_gather_object(value: T) -> list[T]:
    """Return the value of every process, in the order of ranks."""
    values: list[Any] = [value]
    if processes() > 1:
        values = [None] * processes()
        dist.all_gather_object(values, value)
    return values


def barrier() -> None:
    """Wait for the other processes."""
    if processes() > 1:
        dist.barrier()
