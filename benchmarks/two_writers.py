"""What happens when two commands work on one run folder at once?

    python -m benchmarks.two_writers [--pair resume+knn ...]

Twenty pairs of verbs, each on a copy of a run (finished, or stopped on its way), both alive for at least two
seconds together. For each, one waits, one is refused in one line that says who is there, or both results are
whole: every line of every record is JSON, whoever reported success has its record, the run ends with the same
bits as alone. One line for each pair, with how long both lived; the last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hostile import (
    TINY,
    Started,
    damaged,
    digest,
    end_on_term,
    lines,
    one_line,
    run_problems,
    write_images,
)

EPOCHS, LONGER, IMAGES = 80, 110, 96
TOGETHER = 2.0
"""Seconds that both must live."""
TRAINS, MEASURES = ("resume", "pretrain"), ("knn", "probe", "finetune")
READS = ("report", "compare", "spectrum", "watch")
"""Over in less than that: started again until they have lived with the other command for as long."""
HELD = ("process", "pid")
"""One of these words is in a line that says who is there."""


@dataclass(frozen=True)
class Pair:
    """Two commands, {run} being the folder. begin: which copy. later: seconds until the second starts."""

    first: str
    second: str
    begin: str = "finished"
    later: float = 0.0

    @property
    def name(self) -> str:
        return "+".join(self.first.split()[:1] + self.second.split()[:1])

    @property
    def overwrites(self) -> bool:
        return "--overwrite" in self.second


TRAIN = f"pretrain {{photos}} --epochs {EPOCHS} --checkpoint-every 20 --quiet"
PAIRS = (
    Pair("resume {run}", "resume {run}", "stopped"),
    Pair(f"resume {{run}} --epochs {LONGER}", "knn {run} --json"),
    Pair(f"{TRAIN} --out {{run}}", f"{TRAIN} --out {{run}} --overwrite", "nothing", later=4.0),
    Pair("knn {run} --json", "knn {run} --json"),
    Pair("knn {run} --json", "probe {run} --json"),
    Pair("knn {run} --json", "finetune {run} --epochs 2 --json"),
    Pair("export {run}", "export {run}"),
    Pair("embed {run} --out {out}.npy", "embed {run} --out {out}.npy"),
    Pair("report {run}", "report {run}"),
    Pair("resume {run}", "report {run}", "stopped", later=1.0),
    Pair("resume {run}", "checkpoints {run}", "stopped"),
    Pair("resume {run}", "compare {run}", "stopped", later=1.0),
    Pair(TRAIN, TRAIN, "nothing"),
    Pair("pack {photos} --out {out}", "pack {photos} --out {out}"),
    Pair("resume {run}", "export {run}", "stopped"),
    Pair("resume {run}", "embed {run} --out {out}.npy", "stopped"),
    Pair("resume {run}", "spectrum {run} --out {out}.png", "stopped", later=1.0),
    Pair("resume {run}", "watch {run}", "stopped", later=1.0),
    Pair("knn {run} --json", f"{TRAIN} --out {{run}} --overwrite"),
    Pair("resume {run}", "probe {run} --json", "stopped"),
)


class Stage:
    """Runs to begin with, made alone; and pairs on copies of them."""

    def __init__(self, place: Path, *, tell: Callable[[str], None] = print) -> None:
        self.place, self.tell, self.count = place, tell, 0
        self.photos = write_images(place / "photos", IMAGES)
        (place / "home").mkdir()
        self._alone("finished", TRAIN + " --out {run}")
        self._alone("stopped", TRAIN + " --out {run}", FROSSL_MAX_STEPS="30")
        self.bits = {EPOCHS: digest(place / "finished" / "encoder.safetensors")}

    def _alone(self, name: str, command: str, begin: str = "", **more: str) -> None:
        run = self.place / name
        if begin:
            shutil.copytree(self.place / begin, run)
        started = self._start(command, self.place, run, **more)
        if started.wait() != 0:
            raise SystemExit(f"`{command}` alone failed: {started.said[-1000:]}")
        self.tell(f"{name}: alone, {started.ended - started.began:.1f} s")

    def _start(self, command: str, scene: Path, run: Path, **more: str) -> Started:
        words = command.format(run=run, photos=self.photos, out=scene / "out").split()
        words += TINY if words[0] == "pretrain" else ()
        self.count += 1
        return Started(words, scene, log=scene / f"{self.count}.log", **more)

    def run(self, pair: Pair) -> dict[str, Any]:
        """Both commands to their ends: how they ended, and `problems`."""
        if f"--epochs {LONGER}" in pair.first and LONGER not in self.bits:
            self._alone("longer", f"resume {{run}} --epochs {LONGER}", begin="finished")
            self.bits[LONGER] = digest(self.place / "longer" / "encoder.safetensors")
        scene = self.place / f"{self.count:03d}-{pair.name}"
        (scene / "home").mkdir(parents=True)
        run = scene / "run"
        if pair.begin != "nothing":
            shutil.copytree(self.place / pair.begin, run)
        before = lines(run / "evaluation.jsonl")
        sides = [[self._start(pair.first, scene, run)], []]
        time.sleep(pair.later)
        sides[1].append(self._start(pair.second, scene, run))
        while _alive(sides) and time.monotonic() < sides[0][0].began + 600:
            time.sleep(0.02)
            for side, other, command in (
                (sides[0], sides[1], pair.first),
                (sides[1], sides[0], pair.second),
            ):
                goes_on = other[-1].alive or other[-1].arguments[0] in READS
                over = not side[-1].alive and side[-1].arguments[0] in READS
                if over and goes_on and _together(sides) < TOGETHER:
                    side.append(self._start(command, scene, run))
        both = [started for side in sides for started in side]
        for started in both:
            started.kill()  # what did not end by itself
        ends = [_end(started, pair) for started in both]
        together = _together(sides)
        problems = [] if together >= TOGETHER else [f"they lived together for {together:.1f} s only"]
        problems += [
            f"{one.arguments[0]} {end}" for one, end in zip(both, ends, strict=True) if end not in FINE
        ]
        if "whole" not in ends:
            problems.append("neither did its work")
        problems += self._checked(pair, scene, run, both, before)
        outcome = "; ".join(problems) or "as it should be"
        first, second = (", ".join(sorted({_end(one, pair) for one in side})) for side in sides)
        self.tell(f"{pair.name}: {together:.1f} s together; {first} and {second}: {outcome}")
        return {"pair": pair.name, "together": round(together, 1), "ends": ends, "problems": problems}

    def _checked(
        self, pair: Pair, scene: Path, run: Path, both: list[Started], before: list[dict]
    ) -> list[str]:
        """What both have left."""
        found = [] if run.is_dir() or "{run}" not in pair.first else ["the run is gone"]
        found += [one for folder in (run, scene / "out", scene / "runs") for one in damaged(folder)]
        if found:
            return found
        done = [one for one in both if one.process.returncode == 0]
        trained = [one for one in done if one.arguments[0] in TRAINS]
        epochs = LONGER if f"--epochs {LONGER}" in pair.first else EPOCHS
        if "{run}" not in pair.first and trained:  # each has a folder of its own
            made = sorted((scene / "runs").iterdir())
            found += [] if len(made) == len(trained) else [f"{len(trained)} runs in {len(made)} folders"]
            return found + [one for folder in made for one in run_problems(folder, encoder=self.bits[epochs])]
        after = lines(run / "evaluation.jsonl")
        if trained:
            closings = 1 + sum("brief" in record["protocol"] for record in before) * (not pair.overwrites)
            found += run_problems(run, encoder=self.bits[epochs], closings=closings)
        if not pair.overwrites:
            added = sum(_measured(one) for one in done)
            kept = sum("brief" not in record["protocol"] for record in after)
            old = sum("brief" not in record["protocol"] for record in before)
            found += [] if kept == old + added else [f"{added} records reported, {kept - old} written"]
        return found + _outputs(pair, scene, run)


FINE = ("whole", "refused")


def _alive(sides: list[list[Started]]) -> bool:
    return sum(started.alive for side in sides for started in side) > 0  # asks all, so that each end is noted


def _together(sides: list[list[Started]]) -> float:
    """Seconds that commands of both sides were alive at once."""
    now = time.monotonic()
    overlaps = [
        min(one.ended or now, other.ended or now) - max(one.began, other.began)
        for one in sides[0]
        for other in sides[1]
    ]
    return sum(max(0.0, seconds) for seconds in overlaps)


def _end(started: Started, pair: Pair) -> str:
    """`whole`, `refused`, or what was wrong."""
    code, said = started.process.returncode, started.said
    if code == 0 and "Traceback" not in said:
        return "whole"
    line, verb = one_line(started), started.arguments[0]
    if line is None or code not in (1, 2):
        return f"ended with {code}: {said.strip()[-300:]!r}"
    named = any(word in line for word in HELD)
    reads = verb not in (*TRAINS, *MEASURES)
    if (code == 2 and (named or reads)) or pair.overwrites:
        return "refused"
    return f"was refused without saying who is there: {line!r}"


def _measured(started: Started) -> int:
    """Records that a command says it has made."""
    if started.arguments[0] not in MEASURES:
        return 0
    return len(json.loads(started.said.strip().splitlines()[-1])) - 1  # all but `run`


def _outputs(pair: Pair, scene: Path, run: Path) -> list[str]:
    """Files that both were to write."""
    verbs, found = pair.name.split("+"), []
    if verbs == ["export", "export"]:
        there = {path.name for path in (run / "export" / "safetensors").glob("*")}
        missing = {"encoder.safetensors", "preprocess.json", "model_card.md"} - there
        found += [f"the export has no {name}" for name in sorted(missing)]
    if verbs == ["embed", "embed"]:
        found += [] if (scene / "out.npy").is_file() else ["there are no features"]
        found += ["a partial folder is left"] if (scene / "out.npy.partial").exists() else []
    if verbs == ["pack", "pack"]:
        known = json.loads((scene / "out" / "pack.json").read_text())
        whole = zlib.crc32((scene / "out" / "images.bin").read_bytes()) == known["checksum"]
        found += [] if whole else ["the packed pixels have another checksum"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [pair.name for pair in PAIRS]
    parser.add_argument("--pair", choices=names, nargs="*", default=names, metavar="VERB+VERB")
    parser.add_argument("--place", type=Path, help="keep everything here, to be looked at")
    options = parser.parse_args()
    end_on_term()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        place = options.place or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        stage = Stage(place, tell=lambda line: print(line, flush=True))
        rows = [stage.run(pair) for pair in PAIRS if pair.name in options.pair]
    failed = [row["pair"] for row in rows if row["problems"]]
    least = min((row["together"] for row in rows), default=0.0)
    print(json.dumps({"pairs": len(rows), "failed": failed, "least_seconds_together": least, "rows": rows}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
