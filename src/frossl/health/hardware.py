"""Facts about CPU, memory and accelerators, and checks of how well torch uses them."""

from __future__ import annotations

import itertools
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from frossl.health.findings import Accelerator, Finding, Hardware, counted, printable
from frossl.machine import WAITING_VARIABLES, cores, has_bfloat16, memory, threads_spin
from frossl.runs.provenance import cpu_name

PCI_VENDOR_NVIDIA = "0x10de"
PCI_CLASS_DISPLAY = "0x03"
"""Prefix of the PCI classes of display controllers."""
THREADS_TOLERANCE = 1.1
"""Ratio of times up to which two numbers of threads count as equally fast."""


def hardware_facts() -> Hardware:
    """Return facts about CPU and memory."""
    available, (total, free) = cores(), memory()
    return Hardware(
        system=platform.platform(),
        cpu=cpu_name(),
        capability=torch.backends.cpu.get_cpu_capability(),
        cores=available.total,
        usable=available.usable,
        threads=torch.get_num_threads(),
        memory=total,
        free=free,
    )


def accelerators() -> tuple[Accelerator, ...]:
    """Return all CUDA and MPS devices that torch sees."""
    found = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        with torch.cuda.device(number):
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        found.append(Accelerator("cuda", torch.cuda.get_device_name(number), total, free, bf16))
    if torch.backends.mps.is_available():
        total = torch.mps.recommended_max_memory()
        free = total - torch.mps.driver_allocated_memory()
        found.append(Accelerator("mps", f"{cpu_name()} (MPS)", total, free, False))
    return tuple(found)


def check_gpus(devices: tuple[Accelerator, ...]) -> Iterator[Finding]:
    """Check that torch sees the GPUs of the machine, and whether they compute in bf16."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpu_build = torch.version.cuda or torch.version.hip
    for found in devices:
        if found.device == "mps":
            detail = "used only if train.device says so: frossl has not been tested on it yet"
            yield Finding("ok", "MPS is available", detail)
        elif found.bf16:
            yield Finding("ok", f"{found.name}: trains in bf16-mixed")
        else:
            yield Finding("hint", f"{found.name} has no bf16", "frossl trains in 32-true there")
    if any(found.device == "cuda" for found in devices):
        return
    if gpu_build and visible is not None and visible.strip() in ("", "-1"):
        title = f"CUDA_VISIBLE_DEVICES={visible} hides every GPU"
        yield Finding("hint", title, "frossl trains on the CPU", "unset CUDA_VISIBLE_DEVICES")
    elif _has_nvidia() and not gpu_build:
        fix = "install the build that https://pytorch.org/get-started/locally recommends for your driver"
        title = "there is an NVIDIA GPU, and torch was built without CUDA"
        yield Finding("hint", title, "frossl trains on the CPU", fix)
    elif _has_nvidia():
        yield Finding("problem", "torch sees no GPU, though there is one", _cuda_error(), "nvidia-smi")
    elif not devices:
        yield Finding("ok", "no GPU", "frossl trains on the CPU")


def _has_nvidia() -> bool:
    """Return whether the machine has an NVIDIA GPU, whether or not its driver works."""
    if Path("/dev/nvidia0").exists():
        return True
    for entry in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((entry / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == PCI_VENDOR_NVIDIA and kind.startswith(PCI_CLASS_DISPLAY):
            return True
    return False


def _cuda_error() -> str:
    """Return why CUDA cannot be initialized."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return (str(error).splitlines() or [""])[0]
    return f"its driver does not answer (torch was built for CUDA {torch.version.cuda}): install or update it"


def check_instructions(hardware: Hardware) -> Finding:
    """Check for vector instructions of 256 bits or more, without which torch is several times slower."""
    capability = hardware.capability
    if platform.machine() not in ("x86_64", "AMD64") or capability != "DEFAULT":
        return Finding("ok", f"CPU instructions: {capability}")
    if forced := os.environ.get("ATEN_CPU_CAPABILITY"):
        title = f"ATEN_CPU_CAPABILITY={printable(forced)} keeps torch from AVX2"
        return Finding(
            "hint", title, "its own loops then use no vector instructions", "unset ATEN_CPU_CAPABILITY"
        )
    return Finding("hint", "this CPU has no AVX2", "all figures of frossl's docs are from CPUs that have it")


def check_threads(hardware: Hardware) -> Finding:
    """Check that torch uses as many threads as there are usable cores, and measure the difference if not."""
    now, best = hardware.threads, cores().threads
    if now == best:
        return Finding("ok", f"torch uses {counted(now, 'thread')} on {hardware.usable:g} usable cores")
    a, b = torch.ones(2, 512, 512).unbind()
    seconds_now, seconds_best = _fastest([_product(a, b, threads) for threads in (now, best)])
    ratio = seconds_now / seconds_best
    measured = f"a matrix product takes {ratio:.1f} times as long as on {best}, measured just now"
    if seconds_now < THREADS_TOLERANCE * seconds_best:
        measured = f"{best} were no faster just now: are the other cores busy?" if now < best else ""
    variables = [name for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    # without them torch uses a thread for each core that it sees, and it does not see quotas
    unset = variables and cores().quota is None
    fix = f"unset {' '.join(variables)}" if unset else f"export OMP_NUM_THREADS={best}"
    settings = ", ".join(f"{name}={printable(os.environ[name])}" for name in variables)
    title = f"torch uses {counted(now, 'thread')} on {hardware.usable:g} usable cores"
    return Finding("hint", f"{title} ({settings})" if settings else title, measured, fix)


def check_waiting() -> Finding:
    """Check that threads sleep while they wait for one another, so that other busy processes cost little."""
    given = {name: os.environ[name] for name in WAITING_VARIABLES if name in os.environ}
    settings = ", ".join(f"{name}={printable(value)}" for name, value in given.items())
    spins = "threads spin while they wait"
    cost = "beside another busy process, training takes several times as long (docs/results.md)"
    if threads_spin():
        return Finding("hint", f"{spins}: torch was imported before frossl", cost, "import frossl first")
    if given.get("OMP_WAIT_POLICY", "").lower() == "active":
        return Finding("hint", f"{spins} ({settings})", cost, "unset OMP_WAIT_POLICY")
    return Finding("ok", f"threads wait as {settings} says" if settings else "threads wait as torch has it")


def _product(a: Tensor, b: Tensor, threads: int) -> Callable[[], None]:
    """Return a function that multiplies two matrices with so many threads."""

    def multiply() -> None:
        torch.set_num_threads(threads)
        a @ b

    return multiply


def _fastest(functions: Sequence[Callable[[], None]], *, budget: float = 0.3) -> list[float]:
    """Return the shortest time of each function in seconds, called in turn until `budget` seconds are over.

    The shortest is disturbed least by other processes. The number of threads is restored afterwards.
    """
    threads = torch.get_num_threads()
    seconds = [math.inf] * len(functions)
    began = time.perf_counter()
    try:
        for rounds in itertools.count():
            for number, function in enumerate(functions):
                start = time.perf_counter()
                function()
                if rounds:  # the first round is warmup
                    seconds[number] = min(seconds[number], time.perf_counter() - start)
            if rounds > 2 and time.perf_counter() - began > budget:
                break
    finally:
        torch.set_num_threads(threads)
    return seconds


def check_precision() -> Finding:
    """Check for instructions for bfloat16."""
    if has_bfloat16():
        detail = "a run times both precisions before it starts, and takes the faster one"
        return Finding("ok", "this CPU has instructions for bfloat16", detail)
    return Finding("ok", "this CPU has no instructions for bfloat16", "frossl trains in float32 here")
