"""Results of `frossl doctor`: findings, facts about the hardware, and the report that holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from frossl.config import Device

Level = Literal["ok", "hint", "problem"]
"""Severity of a finding: `problem` makes something fail, `hint` costs time or may surprise."""


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    level: Level
    """Severity."""
    title: str
    """Summary in one line."""
    detail: str = ""
    """Explanation or measurement."""
    fix: str = ""
    """Command or setting that fixes it; empty if there is nothing to fix."""

    def to_json(self) -> dict[str, str]:
        """Return the finding as a JSON object; `mend` is what 0.1.0 called `fix`."""
        return {**asdict(self), "mend": self.fix}


@dataclass(frozen=True)
class Hardware:
    """CPU and memory of the machine, and the part that this process may use. Memory is in bytes."""

    system: str
    """Operating system."""
    cpu: str
    """Name of the CPU."""
    capability: str
    """Vector instructions that torch uses."""
    cores: int
    """Number of cores of the machine."""
    usable: float
    """Number of cores that this process may use, by its affinity and the quota of its control groups."""
    threads: int
    """Number of threads of torch."""
    memory: int | None
    """Total memory; None if unknown."""
    free: int | None
    """Free memory; None if unknown."""


@dataclass(frozen=True)
class Accelerator:
    """GPU or other device beside the CPU. Memory is in bytes."""

    device: Device
    """Type of the device."""
    name: str
    """Name of the device."""
    memory: int | None
    """Total memory; None if unknown."""
    free: int | None
    """Free memory; None if unknown."""
    bf16: bool
    """Whether it computes in bfloat16."""


@dataclass(frozen=True)
class DoctorReport:
    """Result of `doctor`."""

    versions: dict[str, str | None]
    """Versions of Python and of packages; None for a package that is not installed."""
    hardware: Hardware
    """CPU and memory."""
    devices: tuple[Accelerator, ...]
    """Accelerators."""
    tested: Device | None
    """Device whose results were compared with float64; None without `test`."""
    findings: tuple[Finding, ...]
    """Results of all checks."""

    @property
    def healthy(self) -> bool:
        """Whether no problem was found."""
        return all(finding.level != "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        findings = [finding.to_json() for finding in self.findings]
        return {"healthy": self.healthy, **asdict(self), "findings": findings}


def counted(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural: `1 thread`, `2 threads`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def printable(value: object) -> str:
    """Return a value as text, with escapes if it could not be printed on one line."""
    return str(value) if str(value).isprintable() else repr(str(value))
