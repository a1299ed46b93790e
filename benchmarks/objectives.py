"""Forward + backward of every objective: time against the floor and against each other, and peak memory.

    python -m benchmarks.objectives [--rounds 9] [--only frossl,Lightly] [--sizes 256x1024] [--views 2,8]

The floor is the two matrix products a view that FroSSL's value and gradient need, the Gram matrix and that
times the projections, into memory that is there already. One interleaved run: each round times everything
once, so that a slow moment of the machine hits all of them; a ratio is the median over rounds of ratios
within a round, with its quartiles. The other objectives take part in the first three rounds. Peak memory is
what a call adds to the process at its highest, the gradient included. An objective that would need more
than 4 GB or half a minute at a size is left out there, and said so. The last line printed is one JSON
object.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import frossl.compat  # noqa: F401  before Lightly, which imports torchvision
from frossl.objectives import OBJECTIVES

SIZES = ((256, 1024), (1024, 1024), (4096, 1024), (256, 8192))
VIEWS = (2, 4, 8)
LEADING = ("floor", "frossl", "frossl, list of views", "Lightly's FroSSLLoss")


def floor(V: int, N: int, D: int) -> Callable[[], None]:
    z = torch.randn(V, N, D)
    gram, out = torch.empty(min(N, D), min(N, D)), torch.empty(N, D)

    def products() -> None:
        for view in z:
            if N <= D:
                torch.mm(view, view.T, out=gram)
                torch.mm(gram, view, out=out)
            else:
                torch.mm(view.T, view, out=gram)
                torch.mm(view, gram, out=out)

    return products


def ours(name: str, V: int, N: int, D: int) -> Callable[[], None]:
    """One step of a Module in training mode, state and all."""
    options = {"queue_size": 4096} if name == "moco" else {}
    loss = OBJECTIVES[name](**options)
    z = torch.randn(V, N, D, requires_grad=True)

    def step() -> None:
        torch.autograd.grad(loss(z).total, z)

    return step


def listed(V: int, N: int, D: int) -> Callable[[], None]:
    """FroSSL on a list of views, as a network gives them."""
    loss = OBJECTIVES["frossl"]()
    views = [torch.randn(N, D, requires_grad=True) for _ in range(V)]

    def step() -> None:
        torch.autograd.grad(loss(views).total, views)

    return step


def lightly(V: int, N: int, D: int) -> Callable[[], None]:
    from lightly.loss import FroSSLLoss

    loss = FroSSLLoss()
    views: list[Tensor] = [torch.randn(N, D, requires_grad=True) for _ in range(V)]

    def step() -> None:
        torch.autograd.grad(loss(views), views)

    return step


def too_much(name: str, V: int, N: int, D: int) -> bool:
    """By the matrices that an objective and its graph hold, in bytes, and its work, in operations."""
    matrices = {
        "simclr": 20 * (V * N) ** 2,
        "spectral": 6 * (V * N) ** 2,
        "moco": 16 * V * N * 4096,
        "lejepa": 16 * V * N * 256 * 17,
        "visreg": 20 * V * N * 4096,
        "corinfomax": 40 * V * D * D,
        "wmse": 24 * V * D * D,
        "iso": 20 * V * D * D,
        "vicreg": 12 * V * D * D,
        "tico": 16 * D * D,
        "barlow": 4 * (V * D) ** 2,
        "matrixssl": 24 * (V * D) ** 2,
    }
    work = {
        "iso": 9 * V * D**3,
        "matrixssl": 20 * V * V * D**3,
        "corinfomax": 4 * V * D**3,
        "wmse": 4 * V * D**3,
        "barlow": 3 * V * V * N * D * D,
        "visreg": 30 * V * N * D * 4096,
    }
    return matrices.get(name, 0) > 4e9 or work.get(name, 0) > 1e12


def resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def peak_memory(step: Callable[[], None]) -> int:
    """Linux: the high-water mark of resident memory is reset, and read after one call."""
    step()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def timed(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def measure(V: int, N: int, D: int, names: list[str], rounds: int) -> dict[str, dict[str, float] | str]:
    makers: dict[str, Callable[[int, int, int], Callable[[], None]]] = {
        name: (lambda V, N, D, name=name: ours(name, V, N, D)) for name in OBJECTIVES
    }
    makers |= {"floor": floor, "frossl, list of views": listed, "Lightly's FroSSLLoss": lightly}
    skipped = [name for name in names if too_much(name, V, N, D)]
    steps = {name: makers[name](V, N, D) for name in ["floor", *names] if name not in skipped}
    memory = {name: peak_memory(step) for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for k in range(rounds):
        for name, step in steps.items():
            if k < 3 or name in LEADING:
                seconds[name].append(timed(step))
    result: dict[str, dict[str, float] | str] = {}
    for name, times in seconds.items():
        ratios = sorted(a / b for a, b in zip(times, seconds["floor"], strict=False))
        slower = sorted(a / b for a, b in zip(times, seconds.get("frossl", times), strict=False))
        result[name] = {
            "ms": round(1e3 * statistics.median(times), 2),
            "ratio": round(statistics.median(ratios), 2),
            "low": round(ratios[len(ratios) // 4], 2),
            "high": round(ratios[-1 - len(ratios) // 4], 2),
            "times_frossl": round(statistics.median(slower), 2),
            "peak_mb": round(memory[name] / 2**20, 1),
        }
    return {**result, **dict.fromkeys(skipped, "more than 4 GB or half a minute")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*LEADING[1:], *(name for name in OBJECTIVES if name != "frossl")]
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", help="names that begin so, separated by commas")
    parser.add_argument("--sizes", help="NxD, separated by commas")
    parser.add_argument("--views", help="separated by commas")
    options = parser.parse_args()
    begins = tuple(options.only.split(",")) if options.only else ("",)
    names = [name for name in every if name.startswith(begins)]
    sizes = [tuple(map(int, s.split("x"))) for s in options.sizes.split(",")] if options.sizes else SIZES
    views = [int(v) for v in options.views.split(",")] if options.views else VIEWS
    results = {}
    for N, D in sizes:
        for V in views:
            print(f"\nN {N}, D {D}, V {V}")
            found = measure(V, N, D, names, options.rounds)
            results[f"{N}x{D}x{V}"] = found
            for name, row in found.items():
                if isinstance(row, str):
                    print(f"  {name:24} {row}")
                else:
                    ratio = f"{row['ratio']:8.2f} × floor ({row['low']:.2f}–{row['high']:.2f})"
                    print(
                        f"  {name:24} {row['ms']:10.2f} ms {ratio} {row['times_frossl']:8.2f} × frossl "
                        f"{row['peak_mb']:9.1f} MB",
                        flush=True,
                    )
    machine = {"cpu": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}
    print(json.dumps({**machine, "torch": torch.__version__, "sizes": results}))


if __name__ == "__main__":
    main()
