"""One writer at a time: a lock file inside a folder, with who holds it and a heartbeat.

A lock is stale, and is taken over, when its process is gone (same host), when its host was started again,
or when its heartbeat is older than `STALE` (another host, where processes cannot be looked at).
"""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import tempfile
import threading
import time
import uuid
import zlib
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from types import TracebackType

from frossl.errors import InputError
from frossl.runs.provenance import command_line

report = logging.getLogger("frossl")

LOCK = ".lock"
TEMPORARY = ".writing-"
"""What the names of files begin with that are still being written; `temporary_prefix` says by whom."""
HEARTBEAT = 30.0
"""Seconds between two heartbeats of whoever holds a lock."""
STALE = 300.0
"""Seconds without a heartbeat after which the holder on another host is taken for lost."""
POLL = 0.05


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    token: str
    """Unique for each time that a lock is taken."""
    host: str
    boot: str
    """Changes when the host is started again."""
    namespace: str
    """Process numbers mean the same only within one of these (containers have their own)."""
    pid: int
    started: str
    """When the process was started, as the system counts: numbers of processes are used again."""
    command: str
    since: str

    @classmethod
    def this_process(cls) -> Holder:
        return cls(
            token=uuid.uuid4().hex,
            host=platform.node(),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            namespace=_namespace(),
            pid=os.getpid(),
            started=_started(os.getpid()),
            command=command_line(),
            since=datetime.now().astimezone().isoformat(timespec="seconds"),
        )

    @classmethod
    def from_json(cls, text: str) -> Holder | None:
        """None where the text is not what a lock holds."""
        try:
            values = json.loads(text)
            holder = cls(**{field.name: values[field.name] for field in fields(cls)})
        except (ValueError, KeyError, TypeError):
            return None
        return holder if isinstance(holder.pid, int) else None

    def is_gone(self) -> bool | None:
        """Whether the process has ended; None where this cannot be told from here."""
        here = Holder.this_process()
        if self.host != here.host:
            return None
        if self.boot != here.boot:
            return True
        if self.namespace != here.namespace or not here.started:
            return None
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.pid} on {self.host}, since {self.since})"


class FolderLock:
    """A lock on a folder, held until `release` or the end of a `with` block.

    Args:
        folder: The folder, which must exist.
        name: The lock file in it.
        wait: Seconds to wait for another holder before giving up.
    """

    def __init__(self, folder: Path, *, name: str = LOCK, wait: float = 0.0) -> None:
        self.folder, self.path, self.wait = folder, folder / name, wait
        self.lost = False
        """Another process has taken the lock over."""
        self._mine: Holder | None = None
        self._released = threading.Event()

    def holder(self) -> Holder | None:
        """Who holds it now; None where it is free or stale."""
        known = self._known()
        return None if known is None or self._stale(known) else known

    def acquire(self) -> None:
        deadline = time.monotonic() + self.wait
        while not self._take():
            if time.monotonic() >= deadline:
                holder = self.holder()
                if holder is None:
                    continue
                raise InputError(f"{self.folder} is in use by {holder}; wait until it ends, or stop it")
            time.sleep(POLL)
        threading.Thread(target=self._beat, name="frossl-lock", daemon=True).start()

    def release(self) -> None:
        self._released.set()
        if self._is_mine():
            self.path.unlink(missing_ok=True)
        self._mine = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _take(self) -> bool:
        known = self._known()
        if known is not None:
            if not self._stale(known):
                return False
            self._remove_stale(known)
        mine = Holder.this_process()
        if not self._create(json.dumps(asdict(mine))):
            return False
        self._mine, self.lost = mine, False
        self._released.clear()
        return True

    def _create(self, text: str) -> bool:
        """Whole or not at all, and only where there is none: False where somebody was quicker."""
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=temporary_prefix(self.path.name))
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            try:
                os.link(temporary, self.path)
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                try:
                    with self.path.open("x", encoding="utf-8", errors="surrogateescape") as file:
                        file.write(text)
                except FileExistsError:
                    return False
        finally:
            Path(temporary).unlink(missing_ok=True)
        return True

    def _known(self) -> Holder | None:
        try:
            text = self.path.read_text(encoding="utf-8", errors="surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            return None
        unreadable = Holder("", "", "", "", 0, "", "an unknown command", "an unknown time")
        return Holder.from_json(text) or unreadable

    def _stale(self, holder: Holder) -> bool:
        gone = holder.is_gone()
        return self._silence() > STALE if gone is None else gone

    def _silence(self) -> float:
        """Seconds since the last heartbeat, by the clock of the file system, which hosts may share."""
        try:
            beat = self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=temporary_prefix("now")) as now:
                return os.fstat(now.fileno()).st_mtime - beat
        except OSError:  # a folder that can only be read
            return time.time() - beat

    def _remove_stale(self, holder: Holder) -> None:
        """Taken aside first, and put back if it is not the one that was found stale but a new one."""
        aside = self.path.with_name(f"{temporary_prefix(self.path.name)}{uuid.uuid4().hex}")
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            return
        taken = Holder.from_json(aside.read_text(encoding="utf-8", errors="surrogateescape"))
        if taken is not None and taken.token != holder.token:
            try:
                os.link(aside, self.path)
            except OSError:
                report.warning("%s was taken from %s by mistake; stop one of the two", self.path, taken)
        aside.unlink(missing_ok=True)

    def _is_mine(self) -> bool:
        known = self._known()
        return self._mine is not None and known is not None and known.token == self._mine.token

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT):
            try:
                if not self._is_mine():
                    self.lost = True
                    return
                os.utime(self.path)
            except OSError:  # a file system that is away for a moment
                continue


def temporary_prefix(name: str) -> str:
    """How the name of a temporary file begins: for which file it is, and which process writes it."""
    return f"{TEMPORARY}{name}-{_here():08x}.{os.getpid()}.{_started(os.getpid())}-"


def is_abandoned(path: Path) -> bool:
    """Whether a temporary file was left by a process that is gone; one that is being written is not."""
    known = re.search(r"-([0-9a-f]{8})\.(\d+)\.(\d*)-[^-]*$", path.name)
    if known is None:  # version 0.1.0 did not say whose they are
        return True
    if int(known[1], 16) == _here() and known[3]:
        return _started(int(known[2])) != known[3]
    try:
        return time.time() - path.stat().st_mtime > STALE
    except OSError:
        return False


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files in a folder that killed processes have left."""
    for path in filter(is_abandoned, folder.glob(f"{TEMPORARY}*")):
        path.unlink(missing_ok=True)


def contents(folder: Path) -> list[Path]:
    """What a folder holds besides locks and temporary files; nothing where there is no folder."""
    found = folder.iterdir() if folder.is_dir() else ()
    return [path for path in found if not path.name.startswith((LOCK, TEMPORARY))]


def _here() -> int:
    """A number for where process numbers mean the same: host, its start, and process namespace."""
    boot = _read("/proc/sys/kernel/random/boot_id")
    return zlib.crc32(f"{platform.node()} {boot} {_namespace()}".encode(errors="replace"))


def _started(pid: int) -> str:
    """When a process was started; empty where it is gone, or where the system does not tell."""
    text = _read(f"/proc/{pid}/stat")
    if text and text.rpartition(")")[2].split()[0] not in "ZX":  # a zombie has ended
        return text.rpartition(")")[2].split()[19]
    return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
