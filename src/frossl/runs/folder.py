"""The run folder: one place for everything a run leaves behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from frossl.errors import InputError
from frossl.runs.record import TEXT, JsonLines

TEMPORARY = ".writing-"


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace `path` whole or not at all: same folder, fsync, rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def bad_file_lines(bad: Iterable[Mapping[str, str]]) -> str:
    """What `bad_files.txt` holds: each file once, with the reason, of several who looked."""
    return "".join(sorted({f"{name!r}\t{why!r}\n" for one in bad for name, why in one.items()}))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.checkpoints = self.path / "checkpoints"
        self.encoder = self.path / "encoder.safetensors"
        self.preprocess = self.path / "preprocess.json"
        self.card = self.path / "model_card.md"
        self.bad_files = self.path / "bad_files.txt"
        self.bad_batch = self.path / "bad_batch.json"
        self.views = self.path / "views.png"
        self.index = self.path / "index.npz"
        self.sample = self.path / "sample.npz"
        self.report = self.path / "report.html"
        self.metrics = JsonLines(self.path / "metrics.jsonl")
        self.diagnostics = JsonLines(self.path / "diagnostics.jsonl")
        self.evaluation = JsonLines(self.path / "evaluation.jsonl")

    @classmethod
    def check_free(cls, path: str | Path, *, overwrite: bool) -> None:
        """Refuse a path that already holds something, before any work."""
        folder = cls(path)
        if folder.config_file.is_file():
            if not overwrite:
                raise InputError(
                    f"{path} already holds a run; continue it with `frossl resume {shlex.quote(str(path))}`, "
                    "or start anew with --overwrite"
                )
        elif folder.path.is_dir() and {p.name for p in folder.path.iterdir()} - {folder.checkpoints.name}:
            raise InputError(f"{path} is not empty and not a run; choose another --out")
        elif folder.path.exists() and not folder.path.is_dir():
            raise InputError(f"{path} is a file; choose another --out")

    @classmethod
    def create(cls, path: str | Path, *, overwrite: bool = False) -> RunFolder:
        """A fresh folder. With `overwrite`, an earlier run there is removed."""
        cls.check_free(path, overwrite=overwrite)
        folder = cls(path)
        try:
            if folder.config_file.is_file():
                shutil.rmtree(folder.path)
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create {path}: {error.strerror}; choose another --out") from None
        return folder

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        folder = cls(path)
        if not folder.path.is_dir():
            raise InputError(f"there is no run at {path}; check the path")
        if not folder.config_file.is_file():
            raise InputError(f"{path} holds no run (no config.toml); give the folder passed to --out")
        return folder

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, lambda file: file.write(text.encode(**TEXT)))

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(**TEXT))
        except ValueError as error:
            raise InputError(f"{self.path / name} is damaged ({error}); start a new run") from None

    def write_status(
        self, state: str, *, step: int, total: int, reason: str = "", verdict: dict[str, str] | None = None
    ) -> None:
        """`state` is running, finished, stopped or failed; `verdict` is how the run goes, as far as known."""
        status = {"state": state, "step": step, "total": total, "reason": reason, "verdict": verdict or {}}
        self.write_json("status.json", status)

    def read_status(self) -> dict[str, Any]:
        """What `write_status` wrote; a run killed before that is one that never got to step 1."""
        try:
            status: dict[str, Any] = self.read_json("status.json")
        except FileNotFoundError:
            status = {"state": "running", "step": 0, "total": 0, "reason": "", "verdict": {}}
        return status

    def forget_after(self, step: int) -> None:
        """Cut the records back to a step, and remove what a killed process left half-written."""
        for lines in (self.metrics, self.diagnostics, self.evaluation):
            if lines.path.is_file():
                kept = [json.dumps(record, ensure_ascii=False) + "\n" for record in lines.up_to(step)]
                self.write_text(lines.path.name, "".join(kept))
        for folder in (self.path, self.checkpoints):
            for torn in folder.glob(f"{TEMPORARY}*"):
                torn.unlink()
