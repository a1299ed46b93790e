"""How far the features of a file have come: a folder beside it, which is gone when the file is there.

about.json     of which images, by which encoder
features.bin   float32 (N, F), block after block
done.jsonl     the blocks that are there, each with its checksum
lock           held by whoever works on it
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from frossl.artifacts.embedding import Block, Done
from frossl.errors import InputError
from frossl.runs.folder import write_atomically
from frossl.runs.lock import TEMPORARY

VERSION = 1
DIFFERS = {
    "version": "by another version of frossl",
    "images": "with other images",
    "weights": "with another encoder",
    "batch_size": "with another batch size",
    "device": "on another device",
}


@dataclass(frozen=True)
class About:
    """What the bits of a file of features depend on."""

    images: str
    """Their digest."""
    weights: str
    """The encoder's fingerprint."""
    count: int
    """N"""
    features: int
    """F"""
    batch_size: int
    device: str
    version: int = VERSION


class Partial:
    """Bytes that are left by an end at any moment are believed by their checksum only."""

    def __init__(self, path: Path, about: About) -> None:
        self.path, self.about = path, about
        self.features = path / "features.bin"
        self._about, self._done = path / "about.json", path / "done.jsonl"

    @classmethod
    def place(cls, out: Path) -> Path:
        return out.with_name(f"{out.name}.partial")

    @classmethod
    def begun(cls, out: Path) -> bool:
        return (cls.place(out) / "about.json").is_file()

    @classmethod
    @contextmanager
    def open(cls, out: Path, about: About, *, overwrite: bool) -> Iterator[Partial]:
        """What was begun with the same images and encoder goes on; anything else is refused, or, with
        `overwrite`, begun anew."""
        partial = cls(cls.place(out), about)
        partial._check_ours(out)
        partial.path.mkdir(exist_ok=True)
        with partial._locked(out):
            known = partial._known()
            if known != asdict(about):
                if known is not None and not overwrite:
                    raise InputError(
                        f"{partial.path} was begun {_difference(known, asdict(about))}; give what it was "
                        "begun with, or start anew with --overwrite"
                    )
                partial._begin()
            yield partial

    def _check_ours(self, out: Path) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is in the way; remove it, or choose another --out")
        known = {self._about.name, self._done.name, self.features.name, "lock"}
        for entry in self.path.iterdir() if self.path.is_dir() else ():
            if entry.name not in known and not entry.name.startswith((TEMPORARY, out.stem)):
                raise InputError(f"{entry} is not ours; remove {self.path}, or choose another --out")

    @contextmanager
    def _locked(self, out: Path) -> Iterator[None]:
        with (self.path / "lock").open("ab") as file:
            try:
                import fcntl  # not on Windows

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is writing {out}; wait for it, or choose another --out"
                ) from None
            except (OSError, ImportError):  # a file system, or a system, that knows no such locks
                pass
            yield

    def _known(self) -> dict[str, Any] | None:
        if not self._about.is_file():
            return None
        try:
            known = json.loads(self._about.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            known = {}
        return known if isinstance(known, dict) else {}

    def _begin(self) -> None:
        self._done.unlink(missing_ok=True)  # first: nothing may be believed of what was there before
        self.features.unlink(missing_ok=True)
        write_atomically(self._about, lambda file: file.write(json.dumps(asdict(self.about)).encode()))

    def done(self, blocks: Sequence[Block]) -> dict[int, Done]:
        """The blocks that are there, by number. What is damaged or cut off is not."""
        for torn in self.path.glob(f"{TEMPORARY}*"):
            torn.unlink()
        with self.features.open("ab") as file:
            file.truncate(self.about.count * self.about.features * 4)
        found = {
            done.block: done
            for done in self._lines()
            if 0 <= done.block < len(blocks) and done.checksum == self._checksum(blocks[done.block])
        }
        lines = "".join(json.dumps(asdict(done)) + "\n" for done in found.values())
        # written anew, as a torn line would spoil the next
        write_atomically(self._done, lambda file: file.write(lines.encode()))
        return found

    def _lines(self) -> Iterator[Done]:
        for line in self._done.read_bytes().splitlines() if self._done.is_file() else ():
            try:
                done = Done(**json.loads(line))
            except (ValueError, TypeError, RecursionError):  # torn
                continue
            if (type(done.block), type(done.checksum), type(done.unreadable)) == (int, int, dict):
                yield done

    def _checksum(self, block: Block) -> int:
        return zlib.crc32(self.read(block.row, block.row + block.count).data)

    def remember(self, done: Done) -> None:
        with self._done.open("ab") as file:
            file.write(json.dumps(asdict(done)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Rows (n, F); NaN where there is no image. Read, not mapped: mapped pages would count as memory."""
        width = self.about.features
        rows = np.fromfile(self.features, np.float32, (stop - start) * width, offset=start * width * 4)
        return rows.reshape(-1, width)

    def deliver(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        """A finished file. Made in here, so that one that was cut short lies nowhere else."""
        made = self.path / path.name
        write_atomically(made, write)
        os.replace(made, path)

    def remove(self) -> None:
        self._about.unlink()  # first: from then on nothing is begun here
        shutil.rmtree(self.path)


def _difference(known: dict[str, Any], about: dict[str, Any]) -> str:
    return next((words for name, words in DIFFERS.items() if known.get(name) != about[name]), "otherwise")
