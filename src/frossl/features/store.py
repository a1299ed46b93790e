"""Partial results of a file of features: a folder beside it that is removed once the file is complete.

about.json     header: images, encoder and settings
features.bin   float32 (N, F), block after block
done.jsonl     completed blocks with their checksums
lock           locked by the process that writes
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

from frossl.errors import InputError
from frossl.features.blocks import Block, BlockResult
from frossl.runs.folder import write_atomically
from frossl.runs.lock import TEMPORARY

VERSION = 2
"""Version of the folder's format."""
DIFFERENCES = {
    "version": "by another version of frossl",
    "images": "with other images",
    "weights": "with another encoder",
    "batch_size": "with another batch size",
    "device": "on another device",
}
"""Descriptions of a difference in each field of the header, for error messages."""


@dataclass(frozen=True)
class StoreHeader:
    """Everything that the bits of a file of features depend on."""

    images: str
    """Digest of the images."""
    weights: str
    """Fingerprint of the encoder."""
    count: int
    """Number of images N."""
    features: int
    """Number of features F."""
    batch_size: int
    device: str
    version: int = VERSION


class FeatureStore:
    """Folder of partial results; a block counts as done only if its checksum matches."""

    def __init__(self, path: Path, header: StoreHeader) -> None:
        self.path, self.header = path, header
        self.features = path / "features.bin"
        self._header_file, self._done_file = path / "about.json", path / "done.jsonl"

    @classmethod
    def path_for(cls, out: Path) -> Path:
        """Return the folder of partial results of the file `out`."""
        return out.with_name(f"{out.name}.partial")

    @classmethod
    def exists(cls, out: Path) -> bool:
        """Return whether there are partial results of the file `out`."""
        return (cls.path_for(out) / "about.json").is_file()

    @classmethod
    @contextmanager
    def open(cls, out: Path, header: StoreHeader, *, overwrite: bool) -> Iterator[FeatureStore]:
        """Open and lock the partial results of a file; resume them if their header is the same.

        Args:
            out: The file of features.
            header: Header of the results to compute.
            overwrite: Start over if the header differs.

        Raises:
            InputError: If the header differs and `overwrite` is not set, the folder holds files of others, or
                another process has locked it.
        """
        store = cls(cls.path_for(out), header)
        store._check_entries(out)
        store.path.mkdir(exist_ok=True)
        with store._locked(out):
            existing = store._read_header()
            if existing != asdict(header):
                if existing is not None and not overwrite:
                    raise InputError(
                        f"{store.path} was begun {_difference(existing, asdict(header))}; give what it was "
                        "begun with, or start anew with --overwrite"
                    )
                store._reset()
            yield store

    def _check_entries(self, out: Path) -> None:
        """Raise if the folder holds anything that frossl did not write."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is in the way; remove it, or choose another --out")
        known = {self._header_file.name, self._done_file.name, self.features.name, "lock"}
        for entry in self.path.iterdir() if self.path.is_dir() else ():
            if entry.name not in known and not entry.name.startswith((TEMPORARY, out.stem)):
                raise InputError(
                    f"{entry} was not written by frossl; remove {self.path}, or choose another --out"
                )

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
            except (OSError, ImportError):  # file systems and platforms without such locks
                pass
            yield

    def _read_header(self) -> dict[str, Any] | None:
        """Return the header in the folder; None without one, empty if it is damaged."""
        if not self._header_file.is_file():
            return None
        try:
            header = json.loads(self._header_file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            header = {}
        return header if isinstance(header, dict) else {}

    def _reset(self) -> None:
        self._done_file.unlink(
            missing_ok=True
        )  # first, so that an interruption leaves no block marked as done
        self.features.unlink(missing_ok=True)
        write_atomically(self._header_file, lambda file: file.write(json.dumps(asdict(self.header)).encode()))

    def done(self, blocks: Sequence[Block]) -> dict[int, BlockResult]:
        """Return the completed blocks by number, and clean up what an interruption left incomplete."""
        for temporary in self.path.glob(f"{TEMPORARY}*"):
            temporary.unlink()
        with self.features.open("ab") as file:
            file.truncate(self.header.count * self.header.features * 4)
        found = {
            result.block: result
            for result in self._recorded()
            if 0 <= result.block < len(blocks) and result.checksum == self._checksum(blocks[result.block])
        }
        lines = "".join(json.dumps(asdict(result)) + "\n" for result in found.values())
        # rewritten, because a line appended to an incomplete one would be lost
        write_atomically(self._done_file, lambda file: file.write(lines.encode()))
        return found

    def _recorded(self) -> Iterator[BlockResult]:
        """Yield the results of all valid lines."""
        for line in self._done_file.read_bytes().splitlines() if self._done_file.is_file() else ():
            try:
                result = BlockResult(**json.loads(line))
            except (ValueError, TypeError, RecursionError):  # an incomplete line
                continue
            if (type(result.block), type(result.checksum), type(result.unreadable)) == (int, int, dict):
                yield result

    def _checksum(self, block: Block) -> int:
        return zlib.crc32(self.read(block.row, block.row + block.count).data)

    def record(self, result: BlockResult) -> None:
        """Record a block as done, and flush it to disk."""
        with self._done_file.open("ab") as file:
            file.write(json.dumps(asdict(result)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Read the rows (n, F) from `start` up to `stop`; NaN where an image could not be read.

        They are not memory-mapped, because mapped pages count towards memory limits.
        """
        width = self.header.features
        rows = np.fromfile(self.features, np.float32, (stop - start) * width, offset=start * width * 4)
        return rows.reshape(-1, width)

    def write_output(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        """Write a result file in the folder, then move it to `path`: no incomplete file appears there."""
        written = self.path / path.name
        write_atomically(written, write)
        os.replace(written, path)

    def remove(self) -> None:
        """Delete the partial results."""
        self._header_file.unlink()  # first, so that an interruption leaves nothing that could be resumed
        shutil.rmtree(self.path)


def _difference(existing: dict[str, Any], header: dict[str, Any]) -> str:
    different = (text for name, text in DIFFERENCES.items() if existing.get(name) != header[name])
    return next(different, "otherwise")
