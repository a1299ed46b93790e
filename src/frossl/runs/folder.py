"""Run folder: the folder that holds every file of a run."""

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
from frossl.runs.json_lines import TEXT, JsonLines, R
from frossl.runs.lock import FolderLock, contents, remove_abandoned, temporary_prefix
from frossl.runs.records import (
    DiagnosticRecord,
    EvaluationRecord,
    Status,
    StepRecord,
    is_count,
    training_seconds,
)

PROVENANCE_FILE = "provenance.json"
"""First file that a run writes, and the last that is removed: it marks a folder as a run of frossl."""
CHECKPOINT = re.compile(r"step-\d{8,}\.pt")
EVALUATION_LOCK = ".evaluation.lock"
"""Lock file that is held while evaluation.jsonl is changed."""
EVALUATION_LOCK_TIMEOUT = 60.0
"""Seconds to wait for that lock."""
LOGGER_FILES = ("tensorboard/events.out.tfevents.*", "wandb/*run-*", "wandb/debug*.log", "mlflow.db*")
FEATURE_FILES = f"features/{'[0-9a-f]' * 32}.safetensors"
"""Pattern of the files of features that evaluations keep."""
PROVENANCE_TABLES = ("versions", "hardware")
"""Keys of the provenance whose values are tables."""


class _ErrorKeepingFile(io.FileIO):
    """File that keeps the error of a failed write, which libraries in between replace with their own."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.error = error
            raise


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file atomically: a temporary file in the same folder, fsync, then a rename.

    Args:
        path: The file to create or replace.
        write: Function that writes the content to an open binary file. If it raises an error, `path` stays as
            it was.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=temporary_prefix(path.name))
    raw = _ErrorKeepingFile(handle, "wb")
    try:
        with io.BufferedWriter(raw) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp creates files that only their owner can read
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if raw.error is not None and error is not raw.error:
            raise raw.error from error
        raise


def bad_file_lines(bad: Iterable[Mapping[str, str]]) -> str:
    """Return the content of `bad_files.txt`: a line for each file, with the reason.

    Args:
        bad: Reasons by file name, from each process or split that read files.
    """
    return "".join(sorted({f"{name!r}\t{why!r}\n" for one in bad for name, why in one.items()}))


def is_run(path: str | bytes | Path) -> bool:
    """Return whether a folder is a run of frossl, by its provenance.json."""
    try:
        text = (Path(os.fsdecode(path)) / PROVENANCE_FILE).read_text(**TEXT)
        known = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(known, dict) and _is_provenance(known)


def _is_provenance(known: Mapping[str, Any]) -> bool:
    identity, versions = known.get("id"), known.get("versions")
    ours = isinstance(versions, dict) and "frossl" in versions
    return ours and isinstance(identity, str) and re.fullmatch("[0-9a-f]{32}", identity) is not None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class RunFolder:
    """Paths and small files of a run.

    Args:
        path: The folder; it need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.checkpoints = self.path / "checkpoints"
        self.features = self.path / "features"
        self.encoder = self.path / "encoder.safetensors"
        self.preprocess = self.path / "preprocess.json"
        self.card = self.path / "model_card.md"
        self.bad_files = self.path / "bad_files.txt"
        self.bad_batch = self.path / "bad_batch.json"
        self.views = self.path / "views.png"
        self.index = self.path / "index.npz"
        self.sample = self.path / "sample.npz"
        self.report = self.path / "report.html"
        self.metrics = JsonLines(self.path / "metrics.jsonl", StepRecord)
        self.diagnostics = JsonLines(self.path / "diagnostics.jsonl", DiagnosticRecord)
        self.evaluation = JsonLines(self.path / "evaluation.jsonl", EvaluationRecord)
        self._lock: FolderLock | None = None

    @classmethod
    def check_free(cls, path: str | Path, *, overwrite: bool, inputs: Iterable[str | Path] = ()) -> None:
        """Check that a new run may be written to a path.

        Args:
            path: Folder for the new run.
            overwrite: Whether an earlier run there may be replaced.
            inputs: Files and folders that the new run reads; none of them may be inside `path`.

        Raises:
            InputError: If the path is a file, holds other files, holds a run and `overwrite` is not set, or
                contains an input or the working folder.
        """
        folder = cls(path)
        if folder.path.exists() and not folder.path.is_dir():
            raise InputError(f"{path} is a file; choose another --out")
        if _contains(folder.path, Path.cwd()):
            raise InputError(f"{path} is or holds the working folder; choose another --out")
        for given in inputs:
            if _contains(folder.path, Path(given)):
                raise InputError(f"{path} is or holds {given}, which the run reads; choose another --out")
        if is_run(path):
            if folder.config_file.is_file() and not overwrite:
                raise InputError(
                    f"{path} already holds a run; continue it with `frossl resume {shlex.quote(str(path))}`, "
                    "or start anew with --overwrite"
                )
        elif folder._has_foreign_files():
            raise InputError(f"{path} is not empty and not a run; choose another --out")

    def _has_foreign_files(self) -> bool:
        """Return whether the folder holds files that an interrupted start does not leave behind."""
        unused = self.checkpoints.is_dir() and not any(self.checkpoints.iterdir())
        return any(path != self.checkpoints or not unused for path in contents(self.path))

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """Create a folder for records and checkpoints, without provenance."""
        cls.check_free(path, overwrite=False)
        folder = cls(path)
        try:
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create {path}: {error.strerror}; choose another --out") from None
        return folder

    @contextmanager
    def reserved(self, *, overwrite: bool = False) -> Iterator[None]:
        """Create the folder if it is missing, and hold its lock within the `with` block."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create {self.path}: {error.strerror}; choose another --out") from None
        with self.locked():
            self.check_free(self.path, overwrite=overwrite)  # another process may have been faster
            yield

    def begin(self, origin: Mapping[str, Any], *, export_files: Iterable[str]) -> None:
        """Remove the files of an earlier run, and write the provenance of a new one.

        Args:
            origin: The provenance.
            export_files: Names of files that exports consist of, which are removed from `export/*`.
        """
        try:
            self._clear(export_files)
            self.write_json(PROVENANCE_FILE, origin)
            self.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {error.strerror}; choose another --out"
            ) from None

    def _clear(self, export_files: Iterable[str]) -> None:
        """Remove the files that a run writes, and no others; the provenance stays until it is replaced."""
        self.config_file.unlink(missing_ok=True)  # first: without it the run cannot be resumed
        for pattern in (*self._file_names(), *LOGGER_FILES, *(f"export/*/{name}" for name in export_files)):
            for path in self.path.glob(pattern):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        for path in self.checkpoint_files():
            path.unlink()
        for folder in (self.path, self.checkpoints, self.features):
            remove_abandoned(folder)
        for name in ("checkpoints", "features", "tensorboard", "wandb", "export/*", "export"):
            for path in self.path.glob(name):
                remove_if_empty(path)

    def _file_names(self) -> list[str]:
        files = [
            self.encoder, self.preprocess, self.card, self.bad_files, self.bad_batch, self.views, self.index,
            self.sample, self.report, self.metrics.path, self.diagnostics.path, self.evaluation.path,
        ]  # fmt: skip
        return [*(file.name for file in files), "status.json", FEATURE_FILES]

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Return the folder of an existing run; an InputError if there is none."""
        folder = cls(Path(path).absolute())
        if not folder.path.is_dir():
            raise InputError(f"there is no run at {path}; check the path")
        if not folder.config_file.is_file():
            raise InputError(f"{path} holds no run (no config.toml); give the folder passed to --out")
        return folder

    @contextmanager
    def locked(self, *, wait: float = 0.0) -> Iterator[None]:
        """Hold the folder's lock within the `with` block, so that no other process trains here.

        Args:
            wait: Seconds to wait for another holder of the lock before an InputError names it.
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
        """Raise an InputError if another process is training in this folder."""
        holder = FolderLock(self.path).holder()
        if holder is not None:
            raise InputError(f"{self.path} is in use by {holder}; wait until it ends, or stop it")

    def check_lock(self) -> None:
        """Raise a TrainingError if another process has taken the folder over: only one may write a run."""
        if self._lock is not None and self._lock.lost:
            raise TrainingError(
                f"another process has taken {self.path} over, as this one was not heard of for minutes; "
                "its run continues there"
            )

    def checkpoint_files(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        found = self.checkpoints.iterdir() if self.checkpoints.is_dir() else ()
        return sorted(path for path in found if CHECKPOINT.fullmatch(path.name))

    def record_evaluation(self, record: Mapping[str, Any], *, identity: str) -> None:
        """Append a record to evaluation.jsonl, unless the folder has been given to another run.

        Args:
            record: Result of an evaluation.
            identity: Id of the run that was evaluated, as `identity()` returned it.
        """
        with FolderLock(self.path, name=EVALUATION_LOCK, wait=EVALUATION_LOCK_TIMEOUT):
            if self.identity() != identity:
                raise InputError(
                    f"{self.path} was replaced by another run while it was measured; measure that one"
                )
            self.evaluation.append(record)

    def provenance(self) -> dict[str, Any]:
        """Return the provenance of the run: command, versions, hardware, seed, index digest."""
        try:
            known = self.read_json(PROVENANCE_FILE)
        except FileNotFoundError:
            raise InputError(
                f"{self.path} holds no run ({PROVENANCE_FILE} is missing); put it back"
            ) from None
        if not isinstance(known, dict) or not is_count(known.get("images")) or not known["images"]:
            raise InputError(f"{self.path / PROVENANCE_FILE} is damaged; start a new run")
        tables = {
            name: value if isinstance(value := known.get(name), dict) else {} for name in PROVENANCE_TABLES
        }
        texts = {name: str(known.get(name, "")) for name in ("id", "index_digest", "command")}
        return {**known, **texts, **tables}

    def identity(self) -> str:
        """Return the id of the run; empty if the folder is not a run."""
        try:
            known = self.read_json(PROVENANCE_FILE)
        except (OSError, InputError):
            return ""
        return str(known["id"]) if isinstance(known, dict) and _is_provenance(known) else ""

    def write_text(self, name: str, text: str) -> None:
        """Write a text file of the folder atomically."""
        write_atomically(self.path / name, lambda file: file.write(text.encode(**TEXT)))

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the folder atomically."""
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the folder; an InputError if it is damaged."""
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
    ) -> None:
        """Write status.json.

        Args:
            state: `running`, `finished`, `stopped` or `failed`.
            step: Number of steps that are done.
            total: Number of steps of the whole run.
            reason: Reason for an early end; empty if there was none.
            verdict: Verdict on the run so far, if there is one.
        """
        status = {"state": state, "step": step, "total": total, "reason": reason, "verdict": verdict or {}}
        self.update_status(Status.new(status), closed=False if state == "finished" else None)

    def update_status(
        self, status: Status, *, verdict: dict[str, str] | None = None, closed: bool | None = None
    ) -> None:
        """Write status.json with changes.

        Args:
            status: The status so far.
            verdict: New verdict; unchanged if None.
            closed: Whether a finished run has its final evaluation and report too; unchanged if None.
        """
        changes = {"verdict": verdict, "closed": closed}
        given = {name: value for name, value in changes.items() if value is not None}
        self.write_json("status.json", Status.new({**status, **given}))

    @property
    def has_status(self) -> bool:
        """Whether the run has written its status."""
        return (self.path / "status.json").is_file()

    def read_status(self) -> Status:
        """Read status.json; a run that was killed before it was written is at step 0."""
        try:
            stored: Any = self.read_json("status.json")
        except FileNotFoundError:
            return Status({"state": "running", "step": 0, "total": 0, "reason": "", "verdict": {}})
        try:
            return Status.parse({"reason": "", "verdict": {}, **stored})
        except (TypeError, ValueError):
            raise InputError(
                f"{self.path / 'status.json'} is damaged; remove it, then use `frossl resume`"
            ) from None

    def training_seconds(self) -> float:
        """Return the seconds of training so far."""
        return training_seconds(self.metrics, self.diagnostics)

    @property
    def closed(self) -> bool:
        """Whether the run is complete, including its final evaluation and report."""
        status = self.read_status()
        whole = self.report.is_file() if status.closed is None else status.closed
        return status.state == "finished" and whole and self.encoder.is_file()

    def mark_closed(self) -> None:
        """Record in status.json that a finished run has its final evaluation and report."""
        self.update_status(self.read_status(), closed=True)

    def remove_evaluation(self, step: int, protocol: str) -> None:
        """Remove evaluation records of a step.

        Args:
            step: The step.
            protocol: End of the names of the protocols whose records are removed.
        """
        with FolderLock(self.path, name=EVALUATION_LOCK, wait=EVALUATION_LOCK_TIMEOUT):
            self._filter_records(
                self.evaluation,
                lambda record: record.step != step or not record.protocol.endswith(protocol),
            )

    def truncate_after(self, step: int) -> None:
        """Remove the records after a step, and the temporary files of killed processes."""
        self._filter_records(self.metrics, lambda record: record.step <= step)
        self._filter_records(self.diagnostics, lambda record: record.step <= step)
        with FolderLock(self.path, name=EVALUATION_LOCK, wait=EVALUATION_LOCK_TIMEOUT):
            self._filter_records(self.evaluation, lambda record: record.step <= step)
        for folder in (self.path, self.checkpoints, self.features):
            remove_abandoned(folder)

    def _filter_records(self, lines: JsonLines[R], keep: Callable[[R], bool]) -> None:
        if lines.path.is_file():
            self.write_text(lines.path.name, lines.lines(keep))


def remove_if_empty(folder: Path) -> None:
    """Remove a folder if it is empty; otherwise, or if it cannot be removed, do nothing."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def _contains(folder: Path, other: Path) -> bool:
    """Return whether `other` is `folder` or is inside it; links are resolved."""
    outer, inner = (Path(os.path.realpath(path)) for path in (folder, other))
    return outer == inner or outer in inner.parents
