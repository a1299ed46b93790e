"""One of many processes: `torchrun --nproc-per-node 2 -m tests.distributed.worker FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from frossl.engine import rank
from tests.distributed.steps import measure_all

if __name__ == "__main__":
    torch.set_num_threads(1)
    found = measure_all(int(os.environ["WORLD_SIZE"]))
    torch.save(found, Path(sys.argv[1]) / f"{rank()}.pt")
