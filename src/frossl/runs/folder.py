"""The run folder: one place for everything a run leaves behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from frossl.errors import InputError, TrainingError
from frossl.runs.lock import FolderLock, contents, remove_abandoned, temporary_prefix
from frossl.runs.record import TEXT, JsonLines, Record, is_count, is_diagnostic, is_evaluation, is_metric

MARK = "provenance.json"
"""Written first and kept to the end: a folder is a run of frossl if this file says so."""
CHECKPOINT = re.compile(r"step-\d{8,}\.pt")
EVALUATION_LOCK, EVALUATION_WAIT = ".evaluation.lock", 60.0
"""Held for the moment in which evaluation.jsonl is changed, and how many seconds others wait for it."""
OF_LOGGERS = ("tensorboard/events.out.tfevents.*", "wandb/*run-*", "wandb/debug*.log", "mlflow.db*")
OF_EXPORTS = (
    "encoder.safetensors", "encoder.onnx", "encoder.onnx.data", "encoder.pt2", "torchvision.safetensors",
    "model.safetensors", "config.json", "README.md", "model_card.md", "preprocess.json",
)  # fmt: skip
TABLES = ("versions", "hardware")
"""Parts of the provenance that are tables."""
STATES = ("running", "finished", "stopped", "failed")


class _Recording(io.FileIO):
    """Remembers the error of a write: libraries in between replace it with one of their own."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.error = error
            raise


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace `path` whole or not at all: same folder, fsync, rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=temporary_prefix(path.name))
    raw = _Recording(handle, "wb")
    try:
        with io.BufferedWriter(raw) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if raw.error is not None and error is not raw.error:
            raise raw.error from error
        raise


def bad_file_lines(bad: Iterable[Mapping[str, str]]) -> str:
    """What `bad_files.txt` holds: each file once, with the reason, of several who looked."""
    return "".join(sorted({f"{name!r}\t{why!r}\n" for one in bad for name, why in one.items()}))


def is_run(path: str | bytes | Path) -> bool:
    """Whether a folder carries the mark that every run of frossl writes first."""
    try:
        text = (Path(os.fsdecode(path)) / MARK).read_text(**TEXT)
        known = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(known, dict) and _is_mark(known)


def _is_mark(known: Mapping[str, Any]) -> bool:
    identity, versions = known.get("id"), known.get("versions")
    ours = isinstance(versions, dict) and "frossl" in versions
    return ours and isinstance(identity, str) and re.fullmatch("[0-9a-f]{32}", identity) is not None


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
        self.metrics = JsonLines(self.path / "metrics.jsonl", is_metric)
        self.diagnostics = JsonLines(self.path / "diagnostics.jsonl", is_diagnostic)
        self.evaluation = JsonLines(self.path / "evaluation.jsonl", is_evaluation)
        self._lock: FolderLock | None = None

    @classmethod
    def check_free(cls, path: str | Path, *, overwrite: bool, inputs: Iterable[str | Path] = ()) -> None:
        """Refuse a path that a new run must not take, before any work.

        Args:
            path: Where the run is to be kept.
            overwrite: Whether an earlier run there may be replaced.
            inputs: Files and folders that the new run reads; none of them may lie in it.
        """
        folder = cls(path)
        if folder.path.exists() and not folder.path.is_dir():
            raise InputError(f"{path} is a file; choose another --out")
        if _holds(folder.path, Path.cwd()):
            raise InputError(f"{path} is or holds the working folder; choose another --out")
        for given in inputs:
            if _holds(folder.path, Path(given)):
                raise InputError(f"{path} is or holds {given}, which the run reads; choose another --out")
        if is_run(path):
            if folder.config_file.is_file() and not overwrite:
                raise InputError(
                    f"{path} already holds a run; continue it with `frossl resume {shlex.quote(str(path))}`, "
                    "or start anew with --overwrite"
                )
        elif folder._foreign():
            raise InputError(f"{path} is not empty and not a run; choose another --out")

    def _foreign(self) -> bool:
        """Whether there is anything in the folder besides what a start that was cut short leaves."""
        unused = self.checkpoints.is_dir() and not any(self.checkpoints.iterdir())
        return any(path != self.checkpoints or not unused for path in contents(self.path))

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """A folder for records and checkpoints, without the mark of a run."""
        cls.check_free(path, overwrite=False)
        folder = cls(path)
        try:
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create {path}: {error.strerror}; choose another --out") from None
        return folder

    @contextmanager
    def reserved(self, *, overwrite: bool = False) -> Iterator[None]:
        """Make the folder if it is missing and hold its lock."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create {self.path}: {error.strerror}; choose another --out") from None
        with self.locked():
            self.check_free(self.path, overwrite=overwrite)  # somebody may have been quicker
            yield

    def begin(self, origin: Mapping[str, Any]) -> None:
        """Remove what an earlier run left, and write the mark of a new one."""
        try:
            self._clear()
            self.write_json(MARK, origin)
            self.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {error.strerror}; choose another --out"
            ) from None

    def _clear(self) -> None:
        """Remove the files that a run writes, and no others; the mark stays until a new one replaces it."""
        self.config_file.unlink(missing_ok=True)  # first: from then on it is no run that could be resumed
        for pattern in (*self._own_names(), *OF_LOGGERS, *(f"export/*/{name}" for name in OF_EXPORTS)):
            for path in self.path.glob(pattern):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        for path in self.checkpoint_files():
            path.unlink()
        for folder in (self.path, self.checkpoints):
            remove_abandoned(folder)
        for name in ("checkpoints", "tensorboard", "wandb", "export/*", "export"):
            for path in self.path.glob(name):
                remove_if_empty(path)

    def _own_names(self) -> list[str]:
        files = [
            self.encoder, self.preprocess, self.card, self.bad_files, self.bad_batch, self.views, self.index,
            self.sample, self.report, self.metrics.path, self.diagnostics.path, self.evaluation.path,
        ]  # fmt: skip
        return [*(file.name for file in files), "status.json"]

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        folder = cls(Path(path).absolute())
        if not folder.path.is_dir():
            raise InputError(f"there is no run at {path}; check the path")
        if not folder.config_file.is_file():
            raise InputError(f"{path} holds no run (no config.toml); give the folder passed to --out")
        return folder

    @contextmanager
    def locked(self, *, wait: float = 0.0) -> Iterator[None]:
        """Hold the folder's lock, so that nobody else trains here.

        Args:
            wait: Seconds to wait for another holder before it is named in an error.
        """
        lock = FolderLock(self.path, wait=wait)
        try:
            lock.acquire()
        except OSError as error:
            raise InputError(f"{self.path} cannot be written ({error.strerror}); check the folder") from None
        self._lock = lock
        try:
            yield
        finally:
            self._lock = None
            lock.release()

    def check_unlocked(self) -> None:
        """Refuse a folder that another process is training in, naming it."""
        holder = FolderLock(self.path).holder()
        if holder is not None:
            raise InputError(f"{self.path} is in use by {holder}; wait until it ends, or stop it")

    def check_lock(self) -> None:
        """End a run whose folder was taken over, so that two processes never write one run."""
        if self._lock is not None and self._lock.lost:
            raise TrainingError(
                f"another process has taken {self.path} over, as this one was not heard of for minutes; "
                "its run goes on there"
            )

    def checkpoint_files(self) -> list[Path]:
        """Checkpoints, oldest first."""
        found = self.checkpoints.iterdir() if self.checkpoints.is_dir() else ()
        return sorted(path for path in found if CHECKPOINT.fullmatch(path.name))

    def record_evaluation(self, record: dict[str, Any], *, identity: str) -> None:
        """Append to evaluation.jsonl, unless the folder holds another run by now.

        Args:
            record: The figures.
            identity: Of the run that was measured, by `identity()`.
        """
        with FolderLock(self.path, name=EVALUATION_LOCK, wait=EVALUATION_WAIT):
            if self.identity() != identity:
                raise InputError(
                    f"{self.path} was replaced by another run while it was measured; measure that one"
                )
            self.evaluation.append(record)

    def provenance(self) -> dict[str, Any]:
        """Where the run came from: command, versions, hardware, seed, index digest."""
        try:
            known = self.read_json(MARK)
        except FileNotFoundError:
            raise InputError(f"{self.path} holds no run ({MARK} is gone); put it back") from None
        if not isinstance(known, dict) or not is_count(known.get("images")) or not known["images"]:
            raise InputError(f"{self.path / MARK} is damaged; start a new run")
        tables = {name: value if isinstance(value := known.get(name), dict) else {} for name in TABLES}
        texts = {name: str(known.get(name, "")) for name in ("id", "index_digest", "command")}
        return {**known, **texts, **tables}

    def identity(self) -> str:
        """The id of the run; empty for a folder that is not one."""
        try:
            known = self.read_json(MARK)
        except (OSError, InputError):
            return ""
        return str(known["id"]) if isinstance(known, dict) and _is_mark(known) else ""

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, lambda file: file.write(text.encode(**TEXT)))

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(**TEXT))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path / name} is damaged ({error}); start a new run") from None

    def write_status(
        self,
        state: str,
        *,
        step: int,
        total: int,
        reason: str = "",
        verdict: dict[str, str] | None = None,
        closed: bool = False,
    ) -> None:
        """Replace status.json.

        Args:
            state: `running`, `finished`, `stopped` or `failed`.
            step: Steps done so far.
            total: Steps of the whole run.
            reason: Why it ended, where it ended early.
            verdict: How the run goes, as far as it is known.
            closed: Whether the evaluation and the report at the end of a finished run are there, too.
        """
        status = {"state": state, "step": step, "total": total, "reason": reason, "verdict": verdict or {}}
        self.write_json("status.json", status | ({"closed": closed} if state == "finished" else {}))

    def read_status(self) -> dict[str, Any]:
        """What `write_status` wrote; a run killed before that is one that never got to step 1."""
        try:
            status: Any = self.read_json("status.json")
        except FileNotFoundError:
            return {"state": "running", "step": 0, "total": 0, "reason": "", "verdict": {}}
        if not _is_status(status):
            raise InputError(
                f"{self.path / 'status.json'} is damaged; remove it, then `frossl resume` goes on"
            )
        return {"reason": "", "verdict": {}, **status}

    @property
    def closed(self) -> bool:
        """Whether the run has come to its end, the evaluation and the report included."""
        status = self.read_status()
        whole = status.get("closed", self.report.is_file())  # runs of version 0.1.0 do not say
        return bool(status["state"] == "finished" and whole and self.encoder.is_file())

    def mark_closed(self) -> None:
        """Say in status.json that a finished run has its evaluation and its report, too."""
        self.write_json("status.json", self.read_status() | {"closed": True})

    def forget_evaluation(self, step: int, protocol: str) -> None:
        """Remove the figures of a step by the protocols whose names end so."""
        with FolderLock(self.path, name=EVALUATION_LOCK, wait=EVALUATION_WAIT):
            self._keep(
                self.evaluation,
                lambda record: record["step"] != step or not record["protocol"].endswith(protocol),
            )

    def forget_after(self, step: int) -> None:
        """Cut the records back to a step, and remove what a killed process left half-written."""
        for lines in (self.metrics, self.diagnostics):
            self._keep(lines, lambda record: record["step"] <= step)
        with FolderLock(self.path, name=EVALUATION_LOCK, wait=EVALUATION_WAIT):
            self._keep(self.evaluation, lambda record: record["step"] <= step)
        for folder in (self.path, self.checkpoints):
            remove_abandoned(folder)

    def _keep(self, lines: JsonLines, wanted: Callable[[Record], bool]) -> None:
        if lines.path.is_file():
            kept = [json.dumps(record, ensure_ascii=False) + "\n" for record in lines if wanted(record)]
            self.write_text(lines.path.name, "".join(kept))


def remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _holds(folder: Path, other: Path) -> bool:
    """Whether `other` is `folder` or lies in it, links followed."""
    outer, inner = (Path(os.path.realpath(path)) for path in (folder, other))
    return outer == inner or outer in inner.parents


def _is_status(status: Any) -> bool:
    return (
        isinstance(status, dict)
        and status.get("state") in STATES
        and all(is_count(status.get(name)) for name in ("step", "total"))
        and isinstance(status.get("reason", ""), str)
        and isinstance(status.get("verdict", {}), dict)
        and all(isinstance(value, str) for value in status.get("verdict", {}).values())
    )
