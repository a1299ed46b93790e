"""Does a run end when its budget says? Each in a process of its own, from the command to its end.

    python -m benchmarks.budget [--data cifar10-mini] [--budget 3m] [--rounds 3]

Reported: seconds of the whole command and their ratio to the budget. Meant for an otherwise idle machine.
The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from frossl.engine.budget import budget_seconds


def one(data: str, budget: str, out: Path) -> dict:
    command = [sys.executable, "-m", "frossl", "pretrain", data, "--budget", budget, "--out", str(out)]
    began = time.perf_counter()
    done = subprocess.run([*command, "--quiet", "--json"], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    result = json.loads(done.stdout.splitlines()[-1])
    ratio = seconds / budget_seconds(budget)
    return {"seconds": round(seconds, 1), "ratio": round(ratio, 3), "steps": result["step"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default="cifar10-mini")
    parser.add_argument("--budget", default="3m")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for i in range(options.rounds):
            rows.append(one(options.data, options.budget, Path(place) / str(i)))
            print(f"{rows[-1]['seconds']} s of {options.budget}, {rows[-1]['ratio']:.3f}", flush=True)
    print(json.dumps({"data": options.data, "budget": options.budget, "rounds": rows}))


if __name__ == "__main__":
    main()
