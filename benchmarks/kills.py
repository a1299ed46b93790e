"""What does a SIGKILL leave behind? Killed in each phase, and started again: the same bits, nothing missing.

    python -m benchmarks.kills [--phase index ...] [--times 4] [--seed 0]

Nine phases: index, plan, training, checkpoint, closing, report, embed, export, pack. Each is recognized from
outside, by files that come and go; a reference run tells how long it lasts, and the kill comes after a random
part of that. A kill that came too late does not count, and is made again. Afterwards `frossl resume` where
there is a run, else the same command: every file must be whole, the set of files that of the reference, and
the weights, features, exports and pixels the same bits. One line for each kill; the last line printed is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hostile import (
    TINY,
    Started,
    damaged,
    digests,
    end_on_term,
    files,
    lines,
    run_problems,
    write_images,
)

MANY, SOME = 12_000, 3_000
"""Names to be indexed, of a tenth as many images; and images to be embedded and packed."""
STEPS, EVERY = 40, 4
"""Of a run, and between its checkpoints."""
SAME = ("encoder.safetensors", "preprocess.json", "config.toml", "index.npz", "views.png")
"""Files of a run that hold no times: the same bits."""
TRIES = 6
"""For one kill; those that come too late are made again."""


class Data:
    """Images under many names, for all scenes."""

    def __init__(self, place: Path) -> None:
        originals = sorted(write_images(place / "original", MANY // 100).rglob("*.png"))
        self.many, self.some = place / "many", place / "some"
        for folder, count in ((self.many, MANY), (self.some, SOME)):
            for i in range(count):
                original = originals[i % len(originals)]
                path = folder / original.parent.name / f"{i:06d}.png"
                if i < len(originals):
                    path.parent.mkdir(parents=True, exist_ok=True)
                os.link(original, path)


class Scene:
    """A place where one command is killed and started again."""

    def __init__(self, place: Path, data: Data, run: Path | None = None) -> None:
        self.place, self.data, self.finished = place, data, run
        self.run, self.features, self.packed = place / "run", place / "features.npy", place / "packed"
        self.exported, self.index = place / "exported", place / "cache" / "index"
        self.started: Started | None = None
        (place / "home").mkdir(parents=True)

    def start(self, arguments: list[str | Path]) -> Started:
        number = len(list(self.place.glob("*.log")))
        self.started = Started(arguments, self.place, log=self.place / f"{number}.log")
        return self.started

    def pretrain(self) -> list[str | Path]:
        more = ["--set", f"train.steps={STEPS}", "--checkpoint-every", str(EVERY), "--quiet"]
        return ["pretrain", self.data.many, *TINY, *more, "--out", self.run]

    def again(self) -> list[str | Path]:
        there = (self.run / "config.toml").is_file()
        return ["resume", self.run, "--quiet"] if there else self.pretrain()

    def embed(self) -> list[str | Path]:
        return ["embed", self.finished or "", self.data.some, "--out", self.features, "--quiet"]

    def export(self) -> list[str | Path]:
        return ["export", self.finished or "", "--out", self.exported]

    def pack(self) -> list[str | Path]:
        return ["pack", self.data.some, "--out", self.packed, "--quiet"]

    def scans(self) -> bool:
        """Has the process a folder of the data open?"""
        with suppress(OSError):
            place = f"/proc/{self.started.process.pid}/fd" if self.started else ""
            for handle in os.listdir(place):
                with suppress(OSError):
                    if os.readlink(f"{place}/{handle}").startswith(f"{self.data.many}/class-"):
                        return os.path.isdir(f"{place}/{handle}")
        return False

    def temporaries(self, folder: Path) -> list[str]:
        return [path.name for path in folder.glob(".writing-*")]

    def trained(self) -> bool:
        return (self.run / "encoder.safetensors").is_file()

    def evaluated(self) -> bool:
        file = self.run / "evaluation.jsonl"
        return file.is_file() and file.stat().st_size > 0

    def step(self) -> int:
        file = self.run / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.is_file() else 0

    def there(self) -> str:
        """What is there, in a few words."""
        found = sorted(
            str(path.relative_to(self.place))
            for folder in (
                self.run,
                self.exported,
                self.packed,
                self.features.with_name("features.npy.partial"),
            )
            for path in folder.rglob("*")
            if path.is_file()
        )
        torn = [name for name in found if ".writing-" in name] + self.temporaries(self.index)
        step = f", step {self.step()}" if self.run.is_dir() else ""
        return f"{len(found)} files{step}" + (f", {torn[0].rpartition('/')[2]}" if torn else "")


@dataclass(frozen=True)
class Phase:
    """When it has begun and when it is over, seen from outside; what starts it, and starts it again."""

    first: Callable[[Scene], list[str | Path]]
    again: Callable[[Scene], list[str | Path]]
    begun: Callable[[Scene], bool]
    over: Callable[[Scene], bool]


def _of_run(begun: Callable[[Scene], bool], over: Callable[[Scene], bool]) -> Phase:
    return Phase(Scene.pretrain, Scene.again, begun, over)


PHASES = {
    "index": _of_run(Scene.scans, lambda s: any(s.index.glob("*.index"))),
    "plan": _of_run(lambda s: any(s.index.glob("*.index")), lambda s: (s.run / "provenance.json").is_file()),
    "training": _of_run(lambda s: s.step() > 0, lambda s: s.step() >= STEPS),
    "checkpoint": _of_run(
        lambda s: bool(s.temporaries(s.run / "checkpoints")),
        lambda s: not s.temporaries(s.run / "checkpoints"),
    ),
    "closing": _of_run(Scene.trained, Scene.evaluated),
    "report": _of_run(Scene.evaluated, lambda s: (s.run / "report.html").is_file()),
    "embed": Phase(
        Scene.embed,
        Scene.embed,
        lambda s: s.features.with_name("features.npy.partial").is_dir(),
        lambda s: s.features.is_file(),
    ),
    "export": Phase(
        Scene.export,
        Scene.export,
        lambda s: s.exported.is_dir(),
        lambda s: (s.exported / "model_card.md").is_file(),
    ),
    "pack": Phase(
        Scene.pack, Scene.pack, lambda s: s.packed.is_dir(), lambda s: (s.packed / "pack.json").is_file()
    ),
}


class Matrix:
    """References, and kills that are compared with them."""

    def __init__(self, place: Path, *, seed: int = 0, tell: Callable[[str], None] = print) -> None:
        self.place, self.tell, self.rng = place, tell, random.Random(seed)
        self.data, self.widths = Data(place / "data"), dict[str, float]()
        self.count = 0
        self.reference = self._undisturbed("reference", ["index", "plan", "training", "closing", "report"])
        self.others: dict[str, Scene] = {}

    def _scene(self, name: str) -> Scene:
        run = self.reference.run if self.count else None
        self.count += 1
        return Scene(self.place / f"{self.count:03d}-{name}", self.data, run)

    def _undisturbed(self, name: str, phases: list[str]) -> Scene:
        """A command that nobody kills; how long its phases take is remembered."""
        scene = self._scene(name)
        begun, over = dict[str, float](), dict[str, float]()
        started = scene.start(PHASES[phases[0]].first(scene))
        while started.alive:
            for phase in phases:
                now = time.monotonic()
                if phase not in begun and PHASES[phase].begun(scene):
                    begun[phase] = now
                if phase in begun and phase not in over and PHASES[phase].over(scene):
                    over[phase] = now
            time.sleep(0.0005)
        if started.process.returncode != 0:
            raise SystemExit(f"{name} failed: {started.said[-1000:]}")
        for phase in phases:
            self.widths[phase] = over.get(phase, begun.get(phase, 0.0)) - begun.get(phase, 0.0)
        widths = ", ".join(f"{phase} {self.widths[phase]:.3f} s" for phase in phases)
        self.tell(f"{name}: undisturbed, {time.monotonic() - started.began:.1f} s; {widths}")
        return scene

    def kill(self, name: str) -> dict[str, Any]:
        """Kill once in a phase, start again, and compare: what happened, with `problems`."""
        phase = PHASES[name]
        if phase.first is not Scene.pretrain and name not in self.others:
            self.others[name] = self._undisturbed(name, [name])
        share, misses = 0.9, -1
        while misses < TRIES:
            misses += 1
            scene = self._scene(name)
            delay = self.rng.uniform(0, share * self.widths.get(name, 0.001))
            after = self.rng.randrange(STEPS - EVERY) if name == "checkpoint" else 0
            started = scene.start(phase.first(scene))
            if hit := _begins(scene, phase, after):
                time.sleep(delay)
            started.kill()
            there = scene.there()
            if hit and started.process.returncode == -9 and not phase.over(scene):
                break
            share /= 2  # it came too late
        else:
            return self._told(name, delay, there, misses, ["no kill came in time"])
        again = phase.again(scene)
        code = scene.start(again).wait()
        problems = [] if code == 0 else [f"`{again[0]}` ended with {code}: {scene.started.said[-300:]!r}"]
        problems += self._problems(name, scene)
        return self._told(name, delay, there, misses, problems, again=str(again[0]))

    def _told(
        self, phase: str, delay: float, there: str, misses: int, problems: list[str], again: str = ""
    ) -> dict[str, Any]:
        outcome = "; ".join(problems) or f"{again} made it whole"
        missed = f", after {misses} that came too late" if misses else ""
        self.tell(f"{phase}: killed {delay * 1000:.1f} ms into it ({there}){missed}: {outcome}")
        return {"phase": phase, "delay": round(delay, 4), "misses": misses, "problems": problems}

    def _problems(self, name: str, scene: Scene) -> list[str]:
        if name in self.others:
            return _differences(self.others[name], scene, name)
        run, reference = scene.run, self.reference.run
        if not run.is_dir():
            return ["there is no run"]
        bits = digests(reference)
        found = run_problems(run, encoder=bits["encoder.safetensors"])
        if gone := sorted(files(reference) - files(run)):
            found.append(f"missing: {', '.join(gone)}")
        if more := sorted(files(run) - files(reference)):
            found.append(f"left over: {', '.join(more)}")
        now = digests(run)
        found += [f"{name} has other bits" for name in SAME if name in now and now[name] != bits[name]]
        if not found:
            losses = [[record["loss"] for record in lines(one / "metrics.jsonl")] for one in (run, reference)]
            found += [] if losses[0] == losses[1] else ["the losses are others"]
        found += [f"cache: {one}" for one in damaged(scene.place / "cache")]
        return found


def _begins(scene: Scene, phase: Phase, after: int) -> bool:
    """Wait until a phase begins, after a step if one is given."""
    until = time.monotonic() + 120
    while scene.started is not None and scene.started.alive and time.monotonic() < until:
        if scene.step() >= after and phase.begun(scene):
            return True
        time.sleep(0.0002)
    return False


def _differences(reference: Scene, scene: Scene, name: str) -> list[str]:
    """Of what a command other than training has written."""
    made = {"embed": "features.npy", "export": "exported", "pack": "packed"}[name]
    own = {one for one in files(scene.place) if not one.startswith(("cache/", "home/")) and ".log" not in one}
    theirs = {n for n in files(reference.place) if not n.startswith(("cache/", "home/")) and ".log" not in n}
    found = [f"missing: {', '.join(sorted(theirs - own))}"] if theirs - own else []
    found += [f"left over: {', '.join(sorted(own - theirs))}"] if own - theirs else []
    if not found and digests(scene.place / made) != digests(reference.place / made):
        found.append(f"{made} has other bits")
    folder = scene.place / made
    return found + (damaged(folder) if folder.is_dir() else [])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--phase", choices=PHASES, nargs="*", default=list(PHASES))
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path, help="keep everything here, to be looked at")
    options = parser.parse_args()
    end_on_term()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        place = options.place or Path(scratch)
        matrix = Matrix(place, seed=options.seed, tell=lambda line: print(line, flush=True))
        rows = [matrix.kill(phase) for phase in options.phase for _ in range(options.times)]
    failed = Counter(row["phase"] for row in rows if row["problems"])
    counts = Counter(row["phase"] for row in rows)
    print(json.dumps({"seed": options.seed, "kills": counts, "failed": failed, "total": len(rows)}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
