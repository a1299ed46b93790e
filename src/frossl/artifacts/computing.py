"""Who computes blocks: threads of this process, or processes that it starts.

A process of those opens images and encoder itself, is told a block in a line of JSON, and answers with
another. It ends with its input, at once: whoever started it may have been killed. So nothing is shared that
would have to be cleaned up, and a script that asks for several needs no guard.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

import torch

import frossl.errors as errors
from frossl.artifacts.embedding import Bench, Block, Done, Job
from frossl.config import Data

MOST_THREADS = 16
"""More in one process wait for Python's lock; processes do not."""

Compute = Callable[[Block], Done]


def compute_blocks(
    bench: Bench, blocks: Sequence[Block], *, processes: int, done: Callable[[Done], None]
) -> None:
    """In threads of this process, or in several processes of one thread each."""
    count = min(processes, len(blocks))
    with _processes(bench.job, count) if count > 1 else _threads(bench) as (executor, compute):
        for future in as_completed([executor.submit(compute, block) for block in blocks]):
            done(future.result())


@contextmanager
def _threads(bench: Bench) -> Iterator[tuple[Executor, Compute]]:
    """As many as torch has, each with passes of its own; on a GPU one reads while the other computes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    executor = ThreadPoolExecutor(min(before, MOST_THREADS) if bench.device == "cpu" else 2)
    try:
        yield executor, bench.compute
    finally:
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


@contextmanager
def _processes(job: Job, count: int) -> Iterator[tuple[Executor, Compute]]:
    workers = [_Worker(job, rank) for rank in range(count)]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def compute(block: Block) -> Done:
        worker = idle.get()
        try:
            return worker.compute(block)
        finally:
            idle.put(worker)

    executor = ThreadPoolExecutor(count)
    try:
        yield executor, compute
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.end()
        executor.shutdown()


class _Worker:
    """A process that computes blocks, seen from here."""

    def __init__(self, job: Job, rank: int) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from frossl.artifacts.computing import work; work()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for us
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self._tell({**asdict(job), "rank": rank})

    def _tell(self, value: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # its answer will be missing
            self._input.write(json.dumps(value).encode() + b"\n")
            self._input.flush()

    def compute(self, block: Block) -> Done:
        self._tell(asdict(block))
        line = self._output.readline()
        if not line:
            raise errors.LostError(
                "a process that computes features is gone (out of memory?); the same command goes on where "
                "it ended"
            )
        answer = json.loads(line)
        if "error" in answer:
            kind = errors.InputError if answer["error"] == "input" else errors.TrainingError
            raise kind(answer["message"])
        return Done(**answer)

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.process.wait()
        self._output.close()


def work() -> None:
    """Such a process from the inside."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    torch.set_num_threads(1)
    first = json.loads(sys.stdin.readline())
    rank, data = first.pop("rank"), Data(**first.pop("data"))
    told: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(told,), daemon=True).start()
    bench: Bench | None = None
    while True:
        block = Block(**json.loads(told.get()))
        try:
            bench = bench or Bench.open(Job(**first, data=data), rank)
            answer = asdict(bench.compute(block))
        except errors.FrosslError as error:
            kind = "input" if isinstance(error, errors.InputError) else "failure"
            answer = {"error": kind, "message": str(error)}
        except OSError as error:  # a full disk
            answer = {
                "error": "TrainingError",
                "message": f"{error}; the same command goes on where it ended",
            }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _listen(told: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        told.put(line)
    os._exit(0)
