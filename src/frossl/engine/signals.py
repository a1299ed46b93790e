"""Stop a run on signals, all processes after the same step, and requeue its SLURM job."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from torch import Tensor

from frossl.engine.gather import largest, processes

report = logging.getLogger("frossl")

COLLAPSE, COLLAPSED = 1000, "collapse"
"""Number and name that stop a collapsed run, where other runs are stopped by a signal."""


class Stop:
    """Number of the signal that asks to stop, read between steps; 0 for none."""

    number = 0


class Consensus:
    """Consensus of all processes: what any of them asks for is known to all of them one step later."""

    def __init__(self, stop: Stop, device: torch.device) -> None:
        self.stop, self.device = stop, device
        self._asked: Callable[[], Tensor] = lambda: torch.zeros(2)

    def reached(self, *, look: bool) -> tuple[str, bool]:
        """Return the name of the signal to stop for, or "", and whether to look at the time budget.

        Every process must call this after every step.

        Args:
            look: Whether this process asks for a look at the time budget.
        """
        if processes() == 1:
            return _name(self.stop.number), look
        number, agreed = self._asked().tolist()
        self._asked = largest(torch.tensor([self.stop.number, look], dtype=torch.float, device=self.device))
        return _name(int(number)), bool(agreed)

    def settle(self) -> None:
        self._asked()


def _name(number: int) -> str:
    if number == COLLAPSE:
        return COLLAPSED
    return signal.Signals(number).name if number else ""


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Stop the run after the current step on Ctrl-C or SIGTERM, and at once on a second signal.

    In a SLURM job SIGUSR1 stops it too, and the job is requeued.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals belong to the main thread: the caller's business
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.number:
            raise KeyboardInterrupt
        stop.number = number

    asking = [signal.SIGINT, signal.SIGTERM]
    if "SLURM_JOB_ID" in os.environ:
        asking.append(signal.SIGUSR1)
    earlier = {number: signal.signal(number, ask) for number in asking}
    try:
        yield stop
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def requeue() -> None:
    """Requeue the SLURM job, after the signal that its time is nearly up."""
    job = os.environ["SLURM_JOB_ID"]
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        report.warning("job %s could not be requeued (%s); `frossl resume` goes on", job, error)
