"""Computation of blocks in threads of this process, or in worker processes.

A worker opens images and encoder itself. It reads blocks from its standard input and writes results to its
standard output, one line of JSON each. It exits when its input ends, as its parent may have been killed.
Nothing shared needs cleaning up, and scripts need no `if __name__ == "__main__"` guard.
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
from frossl.config import Data
from frossl.features.blocks import Block, BlockComputer, BlockResult, Job

MAX_THREADS = 16
"""Largest number of threads: more of them wait for the global interpreter lock."""

Compute = Callable[[Block], BlockResult]


def compute_blocks(
    computer: BlockComputer, blocks: Sequence[Block], *, processes: int, done: Callable[[BlockResult], None]
) -> None:
    """Compute blocks in parallel.

    Args:
        computer: Images, encoder and job.
        blocks: The blocks to compute.
        processes: Number of processes of one thread each; 1 for threads of this process.
        done: Callback for each result, in the order of completion.
    """
    count = min(processes, len(blocks))
    with _processes(computer.job, count) if count > 1 else _threads(computer) as (executor, compute):
        for future in as_completed([executor.submit(compute, block) for block in blocks]):
            done(future.result())


@contextmanager
def _threads(computer: BlockComputer) -> Iterator[tuple[Executor, Compute]]:
    """Start as many threads as torch uses, one per forward pass; on a GPU two, to overlap reading."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    executor = ThreadPoolExecutor(min(before, MAX_THREADS) if computer.device == "cpu" else 2)
    try:
        yield executor, computer.compute
    finally:
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


@contextmanager
def _processes(job: Job, count: int) -> Iterator[tuple[Executor, Compute]]:
    workers = [_Worker(job, rank) for rank in range(count)]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def compute(block: Block) -> BlockResult:
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
    """Parent's side of a worker process."""

    def __init__(self, job: Job, rank: int) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from frossl.features.workers import work; work()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C must reach the parent only
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self._send({**asdict(job), "rank": rank})

    def _send(self, value: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # `compute` notices the missing answer
            self._input.write(json.dumps(value).encode() + b"\n")
            self._input.flush()

    def compute(self, block: Block) -> BlockResult:
        self._send(asdict(block))
        line = self._output.readline()
        if not line:
            raise errors.LostError(
                "a process that computes features is gone (out of memory?); run the same command again to "
                "resume"
            )
        answer = json.loads(line)
        if "error" in answer:
            kind = errors.InputError if answer["error"] == "input" else errors.TrainingError
            raise kind(answer["message"])
        return BlockResult(**answer)

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self.process.wait()
        self._output.close()


def work() -> None:
    """Run a worker process: read blocks from standard input, write results to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the results
    torch.set_num_threads(1)
    first = json.loads(sys.stdin.readline())
    rank, data = first.pop("rank"), Data(**first.pop("data"))
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    computer: BlockComputer | None = None
    while True:
        block = Block(**json.loads(lines.get()))
        try:
            computer = computer or BlockComputer.open(Job(**first, data=data), rank)
            answer = asdict(computer.compute(block))
        except errors.FrosslError as error:
            kind = "input" if isinstance(error, errors.InputError) else "failure"
            answer = {"error": kind, "message": str(error)}
        except OSError as error:  # a full disk
            answer = {
                "error": "TrainingError",
                "message": f"{error}; run the same command again to resume",
            }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _listen(lines: SimpleQueue[str]) -> None:
    """Queue the lines of standard input, and exit at its end."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)
