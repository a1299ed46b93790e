"""Start the processes of a run and connect them."""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from frossl.config import Train
from frossl.engine import heartbeat
from frossl.errors import InputError, LostError
from frossl.machine import cores

if TYPE_CHECKING:  # importing it takes longer than importing torch: not before a run begins
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment

PATIENCE = timedelta(minutes=10)
"""Time that a collective waits for a process that is still connected."""


_known = inspect.signature(DistributedDataParallel).parameters
_OWN_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _known else "broadcast_buffers": False
}
"""Option of DDP (renamed by torch) that turns off its buffer broadcast: every process computes the same."""


def _started_by() -> Literal["torchrun", "srun", "nobody"]:
    """Return the launcher that started this process, if any.

    A script of sbatch has SLURM's variables too; only srun says how many tasks its step has.
    """
    env = os.environ
    if {"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"} <= env.keys():
        return "torchrun"
    return "srun" if int(env.get("SLURM_STEP_NUM_TASKS") or 1) > 1 else "nobody"


def _environment() -> ClusterEnvironment:
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    starter = _started_by()
    if starter == "torchrun":
        return TorchElasticEnvironment()
    return SLURMEnvironment(auto_requeue=False) if starter == "srun" else LightningEnvironment()


def process_counts(train: Train) -> tuple[int, int]:
    """Return processes per node and nodes: as torchrun or srun started them, else as configured."""
    env, starter = os.environ, _started_by()
    if starter == "torchrun":
        devices = int(env["LOCAL_WORLD_SIZE"])
        return devices, int(env["WORLD_SIZE"]) // devices
    if starter == "srun":
        nodes = int(env.get("SLURM_STEP_NUM_NODES") or 1)
        return int(env["SLURM_STEP_NUM_TASKS"]) // nodes, nodes
    return train.devices or 1, train.num_nodes or 1


def open_fabric(train: Train, *, devices: int, num_nodes: int) -> Fabric:
    """Return the Fabric of this process: its device, and the strategy if there are several processes."""
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces processes and precision
    one = devices * num_nodes == 1
    return Fabric(
        accelerator=train.device or "cpu",
        devices=devices,
        num_nodes=num_nodes,
        strategy="auto" if one else DDPStrategy(timeout=PATIENCE, **_OWN_BUFFERS),
        precision=train.precision,
        plugins=[LightningEnvironment() if one else _environment()],
    )


def launch(train: Train) -> Fabric:
    """Start the other processes of this node, unless a launcher has, and wait until all are connected.

    Each runs the same command (or script) from its beginning, and joins where this function is called.
    """
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    devices, num_nodes = process_counts(train)
    wanted = devices * num_nodes
    if dist.is_initialized() and dist.get_world_size() != wanted:
        raise InputError(
            f"this script has had a run of {dist.get_world_size()} processes; one of {wanted} needs a script "
            "of its own"
        )
    try:
        fabric = open_fabric(train, devices=devices, num_nodes=num_nodes)
        if wanted > 1:
            with talking(lambda: "at the start"):
                fabric.launch()
                heartbeat.start(_address(fabric))
    except (ValueError, MisconfigurationException) as error:  # too few devices, interactive use, and the like
        raise InputError(f"cannot use {devices} devices on {num_nodes} nodes: {error}") from None
    if wanted > 1:
        _look_after(getattr(fabric.strategy.launcher, "procs", ()))
    return fabric


@contextmanager
def cpu_threads(train: Train) -> Iterator[Train]:
    """Make torch use the configured number of CPU threads within the `with` block.

    By default it uses those that torch has chosen, but not more than control groups grant, which torch does
    not see. Call it after `launch`, which shares out the cores among the processes of this machine.

    Yields:
        The settings with the number of threads.
    """
    before = torch.get_num_threads()
    chosen = train.threads or (before if "OMP_NUM_THREADS" in os.environ else min(before, cores().workers))
    torch.set_num_threads(chosen)
    try:
        yield replace(train, threads=chosen)
    finally:
        torch.set_num_threads(before)


def _address(fabric: Fabric) -> str:
    """Return the address of the machine with the main process."""
    environment: ClusterEnvironment = fabric.strategy.cluster_environment  # type: ignore[attr-defined]
    return environment.main_address


def _look_after(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for the child processes when this one ends, and terminate those that do not end."""
    for thread in threading.enumerate():
        if thread.name == "child-process-observer":
            # Fabric's own: it would kill this process, without a word, seconds after another has failed
            thread._child_processes = []  # type: ignore[attr-defined]

    def see_off() -> None:
        heartbeat.stop()
        if dist.is_initialized():
            dist.destroy_process_group()
        for child in children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()

    atexit.register(see_off)


@contextmanager
def talking(when: Callable[[], str]) -> Iterator[None]:
    """Turn the error of a collective that failed because another process is gone into a `LostError`."""
    try:
        yield
    except RuntimeError as error:
        if not _of_a_connection(error):
            raise
        reason = str(error).splitlines()[0][:200]
        raise LostError(
            f"lost another process of this run {when()} ({reason}); see what it said, then `frossl resume` "
            "goes on from the newest checkpoint"
        ) from error


def _of_a_connection(error: Exception) -> bool:
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)
