"""Heartbeats between processes, beside the collectives: a lost process is named within a minute.

A process whose network is cut says nothing at all, and a collective operation waits for it for ten minutes.
So a thread of every process sends a line each few seconds over a connection of its own. It does so however
long a step takes; only a process that is stopped, dead or cut off falls silent.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from frossl.engine.gather import all_gather_object, processes, rank
from frossl.errors import LostError

report = logging.getLogger("frossl")

EVERY = 3.0
"""Seconds between two heartbeats."""
SILENT = 40.0
"""Seconds without a heartbeat after which a process counts as lost."""
TICK = 1.0
"""Seconds between two checks; a check that comes much later shows that this process itself was suspended."""
PATIENCE = 10.0
"""Seconds to wait for a connection."""
LONGEST = 1000
"""Maximum bytes of a message."""

BEAT, BYE, LOST = b"beat", b"bye", b"lost"


class Link:
    """Connection to one other process."""

    def __init__(self, connection: socket.socket, other: int | None) -> None:
        """Wrap a socket; `other` is the peer's rank, None until it has introduced itself."""
        connection.setblocking(False)
        self.connection, self.other = connection, other
        self.silence = 0.0
        """Seconds without a message, not counting time in which this process was suspended."""
        self.open = True
        self._text = b""

    def send(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # whoever does not take it is about to fall silent
            self.connection.send(line + b"\n")

    def read(self) -> list[bytes]:
        """Return the messages that have arrived."""
        try:
            received = self.connection.recv(LONGEST)
        except BlockingIOError:
            return []
        except OSError:
            received = b""
        self.open = bool(received) and len(self._text) < LONGEST
        self.silence = 0.0 if self.open else self.silence
        *lines, self._text = (self._text + received).split(b"\n")
        return lines


class Heartbeat:
    """Heartbeats of a run: the main process listens to all others, and all others to it."""

    def __init__(self, links: list[Link], hosts: list[str], server: socket.socket | None, token: str) -> None:
        """Start the thread; `hosts` are by rank, `server` accepts the other processes, which know `token`."""
        self.links, self.hosts, self.server, self.token = links, hosts, server, token
        self.told: Callable[[LostError], None] = lambda error: None
        """Function called with the error before the process ends."""
        self._ended = threading.Event()
        self._selector = selectors.DefaultSelector()
        for link in links:
            self._selector.register(link.connection, selectors.EVENT_READ, link)
        if server is not None:
            self._selector.register(server, selectors.EVENT_READ)
        threading.Thread(target=self._live, name="frossl-heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Say goodbye to the other processes and end the heartbeats."""
        self._send(BYE)
        self._ended.set()

    def _live(self) -> None:
        before, since = time.monotonic(), 0.0
        while not self._ended.is_set():
            for key, _ in self._selector.select(TICK):
                self._hear(key.data)
            # all processes may have been stopped for a while: that time does not count
            now = time.monotonic()
            awake, before = min(now - before, 2 * TICK), now
            since += awake
            if since >= EVERY:
                self._send(BEAT)
                since = 0.0
            for link in list(self.links):
                link.silence += awake
                if link.silence > SILENT:
                    self._lose(link)
        for link in self.links:
            link.connection.close()
        if self.server is not None:
            self.server.close()
        self._selector.close()

    def _hear(self, link: Link | None) -> None:
        if link is None:
            self._let_in()
            return
        for line in link.read():
            word, _, rest = line.partition(b" ")
            if link.other is None and not self._introduced(link, line):
                link.open = False
                break
            if word == BYE:
                link.open, link.other = False, None
            if word == LOST and rest.isdigit() and int(rest) < len(self.hosts):
                self._end(int(rest))
        if not link.open:
            self._selector.unregister(link.connection)
            if link.other is None:
                self._forget(link)

    def _let_in(self) -> None:
        assert self.server is not None
        with contextlib.suppress(OSError):
            link = Link(self.server.accept()[0], None)
            self.links.append(link)
            self._selector.register(link.connection, selectors.EVENT_READ, link)

    def _introduced(self, link: Link, line: bytes) -> bool:
        """Check that a peer knows the token of this run."""
        token, _, number = line.partition(b" ")
        if not hmac.compare_digest(token, self.token.encode()) or not number.isdigit():
            return False
        link.other = int(number)
        return link.other < len(self.hosts)

    def _send(self, line: bytes) -> None:
        for link in list(self.links):
            if link.other is not None:
                link.send(line)

    def _lose(self, link: Link) -> None:
        if link.other is not None:
            self._end(link.other)
        self._selector.unregister(link.connection)  # a stranger that never introduced itself
        self._forget(link)

    def _forget(self, link: Link) -> None:
        self.links.remove(link)
        link.connection.close()

    def _end(self, other: int) -> None:
        """End this process with a message; its main thread may be blocked in a collective for minutes."""
        if self._ended.is_set():
            return
        error = LostError(
            f"lost process {other} of this run on {self.hosts[other]}: nothing was heard from it for "
            f"{SILENT:.0f} s; look at that machine and its network, then `frossl resume` goes on from the "
            "newest checkpoint"
        )
        self._send(LOST + b" %d" % other)
        with contextlib.suppress(Exception):  # a folder on the lost node may be gone too
            self.told(error)
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h")  # a bar may have hidden the cursor
        which = f", process {rank()}" if rank() else ""
        print(f"frossl{which}: {error}", file=sys.stderr)  # noqa: T201
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(LostError.exit_code)


_current: Heartbeat | None = None


def start(address: str) -> None:
    """Start the heartbeats once all processes are connected; `address` is that of the main process."""
    global _current
    stop()
    server = _listening() if rank() == 0 else None
    port = server.getsockname()[1] if server is not None else 0
    told = all_gather_object((socket.gethostname(), port, secrets.token_hex(16)))
    hosts, (_, port, token) = [host for host, _, _ in told], told[0]
    links = [] if rank() == 0 else _connected(address, port, token)
    if links or server is not None:
        _current = Heartbeat(links, hosts, server, token)


def stop() -> None:
    """Stop the heartbeats, if there are any."""
    global _current
    if _current is not None:
        _current.stop()
    _current = None


@contextmanager
def telling(told: Callable[[LostError], None]) -> Iterator[None]:
    """Call `tell` with the error if a process is lost within the block; the heartbeats end with the block."""
    if _current is not None:
        _current.told = told
    try:
        yield
    finally:
        stop()


def _listening() -> socket.socket | None:
    try:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        server = socket.create_server(("", 0), family=family, backlog=processes(), dualstack_ipv6=both)
    except OSError as error:
        report.warning("no heartbeat (%s): a cut network will be noticed after ten minutes", error)
        return None
    server.setblocking(False)
    return server


def _connected(address: str, port: int, token: str) -> list[Link]:
    """Connect to the main process; None if it cannot be reached."""
    if port == 0:
        return []
    try:
        connection = socket.create_connection((address, port), timeout=PATIENCE)
    except OSError as error:
        report.warning("no heartbeat (%s): a cut network will be noticed after ten minutes", error)
        return []
    link = Link(connection, 0)
    link.send(f"{token} {rank()}".encode())
    return [link]
