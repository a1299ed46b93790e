"""How long it takes to know a folder of a million files, the first time and again.

    python -m benchmarks.index [--files 1000000] [--folders 1000] [--at FOLDER]

The files are hard links to a few dozen small ones, in a temporary folder (below --at) that is removed at the
end. Reported: seconds of the first index, of the second, of one after a file was added, and the resident
memory that each added at its highest. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

from frossl.data.index import index_folder

ORIGINALS = 36


def peak() -> float:
    """MB at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make(root: Path, files: int, folders: int) -> None:
    originals = [root / f"original{i}.bin" for i in range(ORIGINALS)]
    for original in originals:
        original.write_bytes(b"x" * 100)
    for d in range(folders):
        folder = root / f"class{d % 100:03d}" / f"part{d:05d}"
        folder.mkdir(parents=True)
        for i in range(files // folders):
            os.link(originals[(d + i) % ORIGINALS], folder / f"image{i:05d}.jpg")


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
                (root / "class000" / "part00000" / "new.jpg").write_bytes(b"x")
            before, began = peak(), time.perf_counter()
            index = index_folder(root, cache=cache)
            seconds = time.perf_counter() - began
            rows[name] = {"files": len(index.names), "seconds": seconds, "added_mb": peak() - before}
            print(f"| {name} | {len(index.names):,} | {seconds:.2f} | {peak() - before:.0f} MB |", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
