"""Many processes: how many there are, how they are started, and what they must agree on."""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

from frossl.config import Train
from frossl.errors import InputError, LostError

PATIENCE = timedelta(minutes=10)
"""How long a process waits for another that is still connected."""


_known = inspect.signature(DistributedDataParallel).parameters
_OWN_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _known else "broadcast_buffers": False
}
"""Every process computes the same state, so there is nothing to send around with each step. torch has renamed
the option."""


def process_counts(train: Train) -> tuple[int, int]:
    """Processes on each node, and nodes: those that torchrun or SLURM has started, else what is asked for."""
    env = os.environ
    if TorchElasticEnvironment.detect():
        devices = int(env["LOCAL_WORLD_SIZE"])
        return devices, int(env["WORLD_SIZE"]) // devices
    if SLURMEnvironment.detect() and int(env["SLURM_NTASKS"]) > 1:
        nodes = int(env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES") or 1)
        return int(env["SLURM_NTASKS"]) // nodes, nodes
    return train.devices or 1, train.num_nodes or 1


def open_fabric(train: Train) -> Fabric:
    """This process and its device, and, of several, the way to the others."""
    devices, num_nodes = process_counts(train)
    strategy: DDPStrategy | str = "auto"
    if devices * num_nodes > 1:
        strategy = DDPStrategy(timeout=PATIENCE, **_OWN_BUFFERS)
    try:
        return Fabric(
            accelerator=train.device or "cpu",
            devices=devices,
            num_nodes=num_nodes,
            strategy=strategy,
            precision=train.precision,
        )
    except Exception as error:  # Fabric's own words for too few devices, no interactive use, and the like
        raise InputError(f"cannot use {devices} devices on {num_nodes} nodes: {error}") from None


def launch(train: Train) -> Fabric:
    """Start the other processes of this node, if nobody has, and wait until all have come together.

    Each runs the same command (or script) from its beginning, and joins where this function is called.
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces every process
    fabric = open_fabric(train)
    with talking("at the start"):
        fabric.launch()
    if fabric.world_size > 1:
        _look_after(getattr(fabric.strategy.launcher, "procs", ()))
    return fabric


def _look_after(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for the other processes when this one ends, and end those that do not."""
    for thread in threading.enumerate():
        if thread.name == "child-process-observer":
            # Fabric's own: it kills this process, without a word, five seconds after another has failed
            thread._finished = True  # type: ignore[attr-defined]

    def see_off() -> None:
        for child in children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()

    atexit.register(see_off)
    atexit.register(dist.destroy_process_group)


def all_equal(value: str) -> bool:
    """True if every process has the same value."""
    if not dist.is_initialized():
        return True
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return len(set(values)) == 1


@contextmanager
def talking(when: str) -> Iterator[None]:
    """Say in words that another process is gone, where a collective operation fails."""
    try:
        yield
    except RuntimeError as error:
        if not _of_a_connection(error):
            raise
        reason = str(error).splitlines()[0][:200]
        raise LostError(
            f"lost another process of this run {when} ({reason}); see what it said, then `frossl resume` "
            "goes on from the newest checkpoint"
        ) from error


def _of_a_connection(error: Exception) -> bool:
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)
