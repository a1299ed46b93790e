"""What other busy processes cost a training step.

    python -m benchmarks.busy [--rounds 3] [--steps 20]

Step times of half a ResNet-18 with two views of 64 px, batch 128, FroSSL and AdamW, on two threads: of
`frossl.pretrain` (with its views), of a loop in plain torch (on given views), and of that loop with Lightly's
loss, each in a process of its own. Quiet, beside one process that keeps one core busy, and beside one on each
core. Each round measures every cell once, in turn; a cell is the median step of its process. The last line
printed is one JSON object: medians over the rounds in milliseconds, and their ratios to quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MAX_SECONDS = 30
"""Seconds after which a loop ends before its last step."""
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")

RUN = """
import json, os, tempfile
import numpy as np
import frossl
os.environ["FROSSL_MAX_STEPS"] = "{steps}"
settings = {{"train.log_every": 1, "diagnostics.share": 0.0, "network.stem": "native", "train.threads": 2}}
view = {{"size": 64, "count": 2, "scale": [0.2, 1.0], "flip": 0.5, "jitter": 0.8, "gray": 0.2}}
with tempfile.TemporaryDirectory() as place:
    images = np.random.default_rng(0).integers(0, 256, (1024, 64, 64, 3), dtype=np.uint8)
    np.save(f"{{place}}/images.npy", images)
    run = frossl.pretrain(
        f"{{place}}/images.npy", out=f"{{place}}/run", backbone="resnet18", width=0.5, batch_size=128,
        settings=settings, config=frossl.Config(views=(frossl.ViewSpec(**view),)), quiet=True,
    )
    print(json.dumps([128 / record.images_per_second for record in run.metrics[2:]]))
"""
LOOP = """
import json, time
import torch
torch.set_num_threads(2)
import frossl.compat, timm
from {package} import FroSSLLoss
torch.manual_seed(0)
backbone = timm.create_model("resnet18", num_classes=0, channels=(32, 64, 128, 256))
backbone = backbone.to(memory_format=torch.channels_last)
layers = torch.nn.Linear(256, 1024), torch.nn.BatchNorm1d(1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)
projector, criterion = torch.nn.Sequential(*layers), FroSSLLoss()
optimizer = torch.optim.AdamW([*backbone.parameters(), *projector.parameters()], lr=1e-3)
views = torch.randn(2, 128, 3, 64, 64)
times = []
while len(times) < {steps} and sum(times) < {seconds} or len(times) < 4:
    start = time.perf_counter()
    z = [projector(backbone(view.contiguous(memory_format=torch.channels_last))) for view in views]
    found = criterion(z)
    optimizer.zero_grad()
    getattr(found, "total", found).backward()
    optimizer.step()
    times.append(time.perf_counter() - start)
print(json.dumps(times[2:]))
"""
ARMS = {
    "frossl": RUN,
    "plain torch": LOOP.replace("{package}", "frossl.objectives"),
    "lightly": LOOP.replace("{package}", "lightly.loss"),
}
"""Programs by name. The loops import torch before frossl, so their threads wait as torch has it."""


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep so many cores busy, one process on each."""
    code = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    usable = sorted(os.sched_getaffinity(0))[:count]
    busy = [subprocess.Popen([sys.executable, "-c", code, str(core)]) for core in usable]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def step_milliseconds(arm: str, steps: int) -> float:
    """Return the median time of a step of an arm, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    code = ARMS[arm].format(steps=steps, seconds=MAX_SECONDS)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{arm} failed:\n{done.stderr}")
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    found: dict[str, dict[int, list[float]]] = {arm: {count: [] for count in range(3)} for arm in ARMS}
    for _ in range(given.rounds):
        for count in range(3):
            for arm in ARMS:
                with neighbours(count):
                    found[arm][count].append(step_milliseconds(arm, given.steps))
    summary = {}
    print(f"{'':14}{'quiet':>10}{'one busy neighbour':>30}{'two':>30}")
    for arm, cells in found.items():
        quiet = cells[0]
        ratios = {n: [busy / still for busy, still in zip(cells[n], quiet, strict=True)] for n in (1, 2)}
        words = [
            f"{statistics.median(cells[n]):.0f} ms, {statistics.median(ratios[n]):.2f} × "
            f"({min(ratios[n]):.2f}–{max(ratios[n]):.2f})"
            for n in (1, 2)
        ]
        print(f"{arm:14}{statistics.median(quiet):>7.0f} ms{words[0]:>30}{words[1]:>30}")
        summary[arm] = {"ms": {n: round(statistics.median(v), 1) for n, v in cells.items()}} | {
            f"ratio_{n}": [round(x, 2) for x in sorted(ratios[n])] for n in (1, 2)
        }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
