"""Lock of a folder: a file that names the process that holds it, with a heartbeat.

A lock is stale, and is taken over, when its process has ended (same host), when its host was rebooted, or
when its heartbeat is older than `STALE` seconds (another host, whose processes cannot be inspected).
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
from frossl.runs.json_lines import TEXT
from frossl.runs.provenance import command_line

logger = logging.getLogger("frossl")

LOCK_FILE = ".lock"
TEMPORARY = ".writing-"
"""Prefix of files that are still being written; `temporary_prefix` adds the process that writes them."""
HEARTBEAT = 30.0
"""Seconds between two heartbeats of a lock."""
STALE = 300.0
"""Seconds without a heartbeat after which a lock from another host is stale."""
POLL_INTERVAL = 0.05
"""Seconds between two attempts to take a lock."""


@dataclass(frozen=True)
class Holder:
    """Process that holds a lock."""

    token: str
    """Random id, new each time that a lock is taken."""
    host: str
    """Name of the host."""
    boot: str
    """Id of the host's last boot."""
    namespace: str
    """PID namespace; process ids can be compared only within one, and containers have their own."""
    pid: int
    """Process id."""
    started: str
    """Start time of the process in clock ticks since boot, as process ids are reused."""
    command: str
    """Command line of the process."""
    since: str
    """Time at which the lock was taken."""

    @classmethod
    def this_process(cls) -> Holder:
        """Describe the current process."""
        return cls(
            token=uuid.uuid4().hex,
            host=platform.node(),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            namespace=_namespace(),
            pid=os.getpid(),
            started=_start_time(os.getpid()),
            command=command_line(),
            since=datetime.now().astimezone().isoformat(timespec="seconds"),
        )

    @classmethod
    def from_json(cls, text: str) -> Holder | None:
        """Parse the content of a lock file; None if it is not valid."""
        try:
            values = json.loads(text)
            holder = cls(**{field.name: values[field.name] for field in fields(cls)})
        except (ValueError, KeyError, TypeError):
            return None
        return holder if isinstance(holder.pid, int) else None

    def has_ended(self) -> bool | None:
        """Return whether the process has ended; None if this host cannot know."""
        here = Holder.this_process()
        if self.host != here.host:
            return None
        if self.boot != here.boot:
            return True
        if self.namespace != here.namespace or not here.started:
            return None
        return _start_time(self.pid) != self.started

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.pid} on {self.host}, since {self.since})"


class FolderLock:
    """Lock on a folder, held until `release` or the end of a `with` block.

    Args:
        folder: The folder, which must exist.
        name: Name of the lock file in it.
        wait: Seconds to wait for another holder before an InputError is raised.
    """

    def __init__(self, folder: Path, *, name: str = LOCK_FILE, wait: float = 0.0) -> None:
        self.folder, self.path, self.wait = folder, folder / name, wait
        self.lost = False
        """Whether another process has taken the lock over."""
        self._own: Holder | None = None
        self._released = threading.Event()

    def holder(self) -> Holder | None:
        """Return the process that holds the lock; None if the lock is free or stale."""
        known = self._read_holder()
        return None if known is None or self._is_stale(known) else known

    def acquire(self) -> None:
        """Take the lock and start its heartbeat; an InputError if another process holds it."""
        deadline = time.monotonic() + self.wait
        while not self._try_acquire():
            if time.monotonic() >= deadline:
                holder = self.holder()
                if holder is None:
                    continue
                raise InputError(f"{self.folder} is in use by {holder}; wait until it ends, or stop it")
            time.sleep(POLL_INTERVAL)
        threading.Thread(target=self._send_heartbeats, name="frossl-lock", daemon=True).start()

    def release(self) -> None:
        """Stop the heartbeat, and remove the lock file if it is still this process's."""
        self._released.set()
        if self._is_own():
            self.path.unlink(missing_ok=True)
        self._own = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _try_acquire(self) -> bool:
        known = self._read_holder()
        if known is not None:
            if not self._is_stale(known):
                return False
            self._remove_stale(known)
        own = Holder.this_process()
        if not self._create(json.dumps(asdict(own))):
            return False
        self._own, self.lost = own, False
        self._released.clear()
        return True

    def _create(self, text: str) -> bool:
        """Create the lock file atomically; return False if another process has created it first."""
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=temporary_prefix(self.path.name))
        try:
            with os.fdopen(handle, "w", **TEXT) as file:
                file.write(text)
            try:
                os.link(temporary, self.path)
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                try:
                    with self.path.open("x", **TEXT) as file:
                        file.write(text)
                except FileExistsError:
                    return False
        finally:
            Path(temporary).unlink(missing_ok=True)
        return True

    def _read_holder(self) -> Holder | None:
        try:
            text = self.path.read_text(**TEXT)
        except (FileNotFoundError, NotADirectoryError):
            return None
        unreadable = Holder("", "", "", "", 0, "", "an unknown command", "an unknown time")
        return Holder.from_json(text) or unreadable

    def _is_stale(self, holder: Holder) -> bool:
        ended = holder.has_ended()
        return self._heartbeat_age() > STALE if ended is None else ended

    def _heartbeat_age(self) -> float:
        """Return the seconds since the last heartbeat, by the file system's clock, which hosts may share."""
        try:
            beat = self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=temporary_prefix("now")) as now:
                return os.fstat(now.fileno()).st_mtime - beat
        except OSError:  # a read-only folder
            return time.time() - beat

    def _remove_stale(self, holder: Holder) -> None:
        """Remove a stale lock. It is renamed first, and put back if it turns out to be a new one."""
        aside = self.path.with_name(f"{temporary_prefix(self.path.name)}{uuid.uuid4().hex}")
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            return
        taken = Holder.from_json(aside.read_text(**TEXT))
        if taken is not None and taken.token != holder.token:
            try:
                os.link(aside, self.path)
            except OSError:
                logger.warning("%s was taken from %s by mistake; stop one of the two", self.path, taken)
        aside.unlink(missing_ok=True)

    def _is_own(self) -> bool:
        known = self._read_holder()
        return self._own is not None and known is not None and known.token == self._own.token

    def _send_heartbeats(self) -> None:
        while not self._released.wait(HEARTBEAT):
            try:
                if not self._is_own():
                    self.lost = True
                    return
                os.utime(self.path)
            except OSError:  # a network file system may be unavailable for a moment
                continue


def temporary_prefix(name: str) -> str:
    """Return the prefix of a temporary file: the name of its target, and the process that writes it."""
    return f"{TEMPORARY}{name}-{_process_scope():08x}.{os.getpid()}.{_start_time(os.getpid())}-"


def is_abandoned(path: Path) -> bool:
    """Return whether a temporary file was left behind by a process that has ended."""
    known = re.search(r"-([0-9a-f]{8})\.(\d+)\.(\d*)-[^-]*$", path.name)
    if known is None:  # version 0.1.0 did not name the process
        return True
    if int(known[1], 16) == _process_scope() and known[3]:
        return _start_time(int(known[2])) != known[3]
    try:
        return time.time() - path.stat().st_mtime > STALE
    except OSError:
        return False


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder."""
    for path in filter(is_abandoned, folder.glob(f"{TEMPORARY}*")):
        path.unlink(missing_ok=True)


def contents(folder: Path) -> list[Path]:
    """Return the entries of a folder without locks and temporary files; none if there is no folder."""
    found = folder.iterdir() if folder.is_dir() else ()
    return [path for path in found if not path.name.startswith((LOCK_FILE, TEMPORARY))]


def _process_scope() -> int:
    """Return a hash of host, boot and PID namespace: process ids can be compared where it is the same."""
    boot = _read("/proc/sys/kernel/random/boot_id")
    return zlib.crc32(f"{platform.node()} {boot} {_namespace()}".encode(errors="replace"))


def _start_time(pid: int) -> str:
    """Return the start time of a process; empty if it has ended or the system does not provide it."""
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
