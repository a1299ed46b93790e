"""What this process may use of the machine: cores and memory, where containers and job systems grant a part.

Read from Linux's own files; elsewhere what Python knows. `root` is where those files lie.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True)
class Cores:
    """Of the machine, and those of them that this process may use."""

    total: int
    """Logical ones, that is hardware threads."""
    allowed: int
    """Those that it may run on (affinity)."""
    physical: int
    """Cores among the allowed ones: two hardware threads of one compute no faster than one."""
    quota: float | None
    """So many at a time (control groups); None for as many as there are."""

    @property
    def usable(self) -> float:
        return float(self.allowed) if self.quota is None else min(float(self.allowed), self.quota)

    @property
    def threads(self) -> int:
        """As many as compute at once."""
        return max(1, int(min(float(self.physical), self.usable)))


def cores(root: Path = ROOT) -> Cores:
    total = os.cpu_count() or 1
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(total))
    places = root / "sys/devices/system/cpu"
    siblings = {_read(places / f"cpu{n}/topology/thread_siblings_list") or str(n) for n in allowed}
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return Cores(total, len(allowed), len(siblings), min(quotas, default=None))


def _quota(group: Path) -> float | None:
    """Processor time over wall-clock time, of one control group."""
    granted = (_read(group / "cpu.max") or "").split()
    if not granted:
        quota, period = (_read(group / f"cpu.cfs_{part}_us") for part in ("quota", "period"))
        granted = [quota or "-1", period or "-1"]
    if not granted[0].isdigit() or not granted[-1].isdigit() or not int(granted[-1]):
        return None
    return int(granted[0]) / int(granted[-1])


def memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Bytes in all and bytes that are free, for this process; None where nobody says."""
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
    """Bytes of files that are kept in memory and given up when it is needed; control groups count them."""
    lines = (_read(group / "memory.stat") or "").splitlines()
    known = dict(line.split()[:2] for line in lines if len(line.split()) >= 2)
    return int(known.get("total_inactive_file") or known.get("inactive_file") or 0)


def _groups(root: Path, kind: str) -> Iterator[Path]:
    """The control groups that this process is in, and those that hold them, of version 2 and of version 1."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and kind not in kinds.split(","):
            continue
        top = root / "sys/fs/cgroup" / (kind if kinds else "")
        place = top / path.lstrip("/")
        while True:  # inside a container the path may be that of the host: its top is here all the same
            yield place
            if place == top or top not in place.parents:
                break
            place = place.parent


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _read(path) or ""
    return int(text) if text.isdigit() else None
