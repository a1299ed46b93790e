"""How long it takes to know a folder of a million files, the first time and again.

    python -m benchmarks.index [--files 1000000] [--folders 1000] [--at FOLDER]

The files are hard links to a few dozen JPEG files, in a temporary folder (below --at) that is removed at the
end. Reported: seconds of the first index, of the second, of one after a file was added, and the memory that
each added at its highest; then, in a process of its own, what a run holds: seconds until a data set with its
labels is open and the first epoch is shuffled, and resident bytes for each image, its own and those of the
mapped index (which the system takes back when it needs them). The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from frossl.data.index import index_folder

ORIGINALS = 36


def peak() -> float:
    """MB at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make(root: Path, files: int, folders: int) -> None:
    originals = [root / f"original{i}.bin" for i in range(ORIGINALS)]
    for number, original in enumerate(originals):
        Image.new("RGB", (40, 30), (7 * number, 90, 90)).save(original, "JPEG")
    for d in range(folders):
        folder = root / f"class{d % 100:03d}" / f"part{d:05d}"
        folder.mkdir(parents=True)
        for i in range(files // folders):
            os.link(originals[(d + i) % ORIGINALS], folder / f"image{i:05d}.jpg")


HOLD = """
import json, sys, time
from pathlib import Path
from frossl.data import Loader, open_dataset

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
    return kilobytes["RssAnon"] * 1024, kilobytes["RssFile"] * 1024

before, began = resident(), time.perf_counter()
dataset = open_dataset(sys.argv[1], size=32)
loader = Loader(dataset.train.source, batch_size=256, epochs=2, seed=0)
loader.source.read(loader.ids(0))
seconds = time.perf_counter() - began
own, mapped = ((after - b) / len(dataset.train.source) for after, b in zip(resident(), before))
print(json.dumps({"seconds": seconds, "own_bytes": own, "mapped_bytes": mapped}))
"""


def hold(root: Path, cache: Path) -> dict[str, float]:
    """What an open data set costs, in a fresh process."""
    environment = {**os.environ, "FROSSL_CACHE": str(cache)}
    command = [sys.executable, "-c", HOLD, str(root)]
    out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(out)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--folders", type=int, default=1000)
    parser.add_argument("--at", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.at) as place:
        root, cache = Path(place) / "images", Path(place) / "cache"
        root.mkdir()
        make(root, options.files, options.folders)
        time.sleep(3)  # folders that have just changed are not trusted
        rows = {}
        print("| | files | seconds | memory added |\n|---|---|---|---|")
        for name in ("first", "again", "with one more"):
            if name == "with one more":
                held = hold(root, cache)
                (root / "class000" / "part00000" / "new.jpg").write_bytes(b"x")
            before, began = peak(), time.perf_counter()
            index = index_folder(root, cache=cache / "index")
            seconds = time.perf_counter() - began
            rows[name] = {"files": len(index.names), "seconds": seconds, "added_mb": peak() - before}
            print(f"| {name} | {len(index.names):,} | {seconds:.2f} | {peak() - before:.0f} MB |", flush=True)
    print(
        f"\nopen again in {held['seconds']:.2f} s; resident bytes for each image: {held['own_bytes']:.0f}, "
        f"and {held['mapped_bytes']:.0f} mapped"
    )
    print(json.dumps({**rows, "held": held}))


if __name__ == "__main__":
    main()
