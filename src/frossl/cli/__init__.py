"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import typer

from frossl.cli import data, doctor, embedding, exporting, measuring, reports, training
from frossl.cli.common import app
from frossl.errors import FrosslError

__all__ = ["app", "data", "doctor", "embedding", "exporting", "main", "measuring", "reports", "training"]

INTERRUPTED = 130


def main() -> None:
    """Run the command line: 0 done, 2 bad input, 1 failure, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may hold bytes that no encoding can print
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.getLogger("frossl").addFilter(_make_harmless)
    earlier = signal.signal(signal.SIGINT, _leave)
    try:
        code = app(standalone_mode=False)
    except FrosslError as error:
        _say(f"frossl{_process()}: {error}")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say("frossl: interrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None  # whoever read our output has gone: nothing left to flush
        code = 1
    except OSError as error:
        _say(f"frossl: {error}")
        code = 1
    except Exception as error:
        if not hasattr(error, "exit_code") or not hasattr(error, "show"):
            raise
        error.show()  # a usage error of the command line itself
        code = error.exit_code
    finally:
        signal.signal(signal.SIGINT, earlier)
    sys.exit(code or 0)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C outside of training: every file is written whole or not at all, so leave at once.

    A KeyboardInterrupt in the middle of importing torch would end in one of many tracebacks.
    """
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # a bar may have hidden the cursor
    sys.stderr.write("\n")
    _say("frossl: interrupted")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _make_harmless(record: logging.LogRecord) -> bool:
    """Warnings may name files, whose names may hold what moves a terminal."""
    from frossl.live.words import harmless

    record.msg, record.args = harmless(record.getMessage()), ()
    return True


def _process() -> str:
    """Which of several processes speaks, if it is not the first."""
    if "torch" not in sys.modules:
        return ""
    from frossl.engine import rank

    return f", process {rank()}" if rank() else ""


def _say(text: str) -> None:
    """One line, whatever names a message holds."""
    from frossl.live.words import harmless

    print(harmless(text), file=sys.stderr)  # noqa: T201
