"""Provenance of a run: command, versions, hardware, seed, index digest."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from frossl.machine import cores

PACKAGES = ("frossl", "torch", "torchvision", "timm", "lightning-fabric", "scikit-learn", "numpy", "pillow")
"""Packages whose versions are recorded."""

FORMAT = 2
"""Format of the run folder: 2 since checkpoints name their run; version 0.1.0 wrote no format number."""


def provenance(
    *, seed: int, index_digest: str, images: int, weights_digest: str | None = None
) -> dict[str, Any]:
    """Describe the origin of a run that starts now.

    Args:
        seed: Seed of the run.
        index_digest: Digest of the index of its images.
        images: Number of images to train on.
        weights_digest: Digest of the file of initial weights; None if there is none.
    """
    return {
        "format": FORMAT,
        "id": uuid.uuid4().hex,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}},
        "hardware": {"system": platform.platform(), "cpu": cpu_name(), "cores": cores().workers},
        "job": os.environ.get("SLURM_JOB_ID"),
        "seed": seed,
        "images": images,
        "index_digest": index_digest,
        "weights_digest": weights_digest,
    }


def command_line() -> str:
    """Return the command line of this process, quoted for a shell."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    """Return the model name of the CPU."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
