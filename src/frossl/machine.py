"""Cores and memory that this process may use, which containers and job systems may limit; how threads wait.

Cores and memory are read from Linux's `/proc` and `/sys`; on other systems, Python's own values are used.
`root` is the folder that holds `proc` and `sys`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")

WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables that decide how OpenMP threads wait for one another. libgomp, which torch uses on Linux, reads
the first two; libomp, which it uses on macOS, the first and the last."""


class _Threads:
    """How the OpenMP threads of this process wait."""

    spin = False


def let_threads_sleep() -> None:
    """Make OpenMP threads sleep while they wait, unless the user has decided how they wait.

    As torch comes, a thread that waits for another one spins. If a second process is busy on the same core,
    the other thread waits for that core while the first one uses it to spin. OpenMP reads the variable when
    torch is imported: afterwards, it reaches processes that are started from this one, but not this one.
    """
    if not any(name in os.environ for name in WAITING_VARIABLES):
        _Threads.spin = "torch" in sys.modules
        os.environ["OMP_WAIT_POLICY"] = "passive"


def threads_spin() -> bool:
    """Return whether threads of this process spin because torch was imported before frossl."""
    return _Threads.spin


@dataclass(frozen=True)
class Cores:
    """Cores of the machine, and those that this process may use."""

    total: int
    """Number of logical cores, that is hardware threads, of the machine."""
    allowed: int
    """Number of logical cores that this process may run on (CPU affinity)."""
    physical: int
    """Number of physical cores among the allowed ones; two hardware threads of one are no faster than one."""
    quota: float | None
    """Number of cores that the control groups grant at a time; None for no limit."""

    @property
    def usable(self) -> float:
        """Number of logical cores that this process can use at a time."""
        return float(self.allowed) if self.quota is None else min(float(self.allowed), self.quota)

    @property
    def workers(self) -> int:
        """Number of threads that decode or read files at a time: the usable cores, at least one."""
        return max(1, int(self.usable))

    @property
    def threads(self) -> int:
        """Number of threads that compute fastest: the usable physical cores, at least one."""
        return max(1, int(min(float(self.physical), self.usable)))


def cores(root: Path = ROOT) -> Cores:
    """Count the cores of the machine and those that this process may use."""
    total = os.cpu_count() or 1
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(total))
    topology = root / "sys/devices/system/cpu"
    siblings = {_read(topology / f"cpu{n}/topology/thread_siblings_list") or str(n) for n in allowed}
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return Cores(total, len(allowed), len(siblings), min(quotas, default=None))


def has_bfloat16(root: Path = ROOT) -> bool:
    """Return whether the CPU has instructions for bfloat16, without which it is many times slower."""
    known = (_read(root / "proc/cpuinfo") or "").split()
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(known)


def _quota(group: Path) -> float | None:
    """Return the cores that a control group grants: its processor time over wall-clock time."""
    granted = (_read(group / "cpu.max") or "").split()
    if not granted:
        quota, period = (_read(group / f"cpu.cfs_{part}_us") for part in ("quota", "period"))
        granted = [quota or "-1", period or "-1"]
    if not granted[0].isdigit() or not granted[-1].isdigit() or not int(granted[-1]):
        return None
    return int(granted[0]) / int(granted[-1])


def memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Return the total and the free memory of this process in bytes; None for what is unknown."""
    lines = (_read(root / "proc/meminfo") or "").splitlines()
    known = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    total, free = known.get("MemTotal"), known.get("MemAvailable")
    if total is None and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in _groups(root, "memory"):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit is None or total is None or limit >= total:
            continue
        total = limit
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
        left = max(0, limit - used + _reclaimable(group))
        free = left if free is None else min(free, left)
    return total, free


def _reclaimable(group: Path) -> int:
    """Return the bytes of the page cache that are freed on demand; control groups count them as used."""
    lines = (_read(group / "memory.stat") or "").splitlines()
    known = dict(line.split()[:2] for line in lines if len(line.split()) >= 2)
    return int(known.get("total_inactive_file") or known.get("inactive_file") or 0)


def _groups(root: Path, kind: str) -> Iterator[Path]:
    """Yield the control groups (version 1 and 2) of this process, and the groups that contain them."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and kind not in kinds.split(","):
            continue
        top = root / "sys/fs/cgroup" / (kind if kinds else "")
        group = top / path.lstrip("/")
        while True:  # in a container the path may be the host's and not exist here, but `top` does
            yield group
            if group == top or top not in group.parents:
                break
            group = group.parent


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _read(path) or ""
    return int(text) if text.isdigit() else None
