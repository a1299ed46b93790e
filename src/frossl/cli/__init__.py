"""Command line interface. Heavy packages are imported only by the commands that need them."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import typer

from frossl.cli import data, doctor, embed, evaluate, export, reports, train
from frossl.cli.common import app
from frossl.errors import FrosslError

__all__ = ["app", "data", "doctor", "embed", "evaluate", "export", "main", "reports", "train"]

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def main() -> None:
    """Run the command line and exit: 0 for success, 2 for bad input, 1 for failure, 130 for an interrupt."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may contain bytes that no encoding can print
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.getLogger("frossl").addFilter(_sanitize_record)
    earlier = signal.signal(signal.SIGINT, _exit_on_interrupt)
    try:
        code = app(standalone_mode=False)
    except FrosslError as error:
        _say(f"frossl{_process_suffix()}: {error}")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say("frossl: interrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None  # the reader has closed the pipe: flushing it at exit would fail again
        code = 1
    except OSError as error:
        _say(f"frossl: {error}")
        code = 1
    except Exception as error:
        if not hasattr(error, "exit_code") or not hasattr(error, "show"):
            raise
        error.show()  # a usage error raised by typer
        code = error.exit_code
    finally:
        signal.signal(signal.SIGINT, earlier)
    sys.exit(code or 0)


def _exit_on_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at once on Ctrl-C outside of training: files are written atomically, so that none is damaged.

    A KeyboardInterrupt during the import of torch would end in a traceback.
    """
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # a progress bar may have hidden the cursor
    sys.stderr.write("\n")
    _say("frossl: interrupted")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _sanitize_record(record: logging.LogRecord) -> bool:
    """Escape control characters in log messages: they may contain file names."""
    from frossl.text import sanitize

    record.msg, record.args = sanitize(record.getMessage()), ()
    return True


def _process_suffix() -> str:
    """Return a suffix that names this process, if it is not the main one of several."""
    if "torch" not in sys.modules:
        return ""
    from frossl.engine import rank

    return f", process {rank()}" if rank() else ""


def _say(text: str) -> None:
    """Print one line to standard error, with control characters escaped."""
    from frossl.text import sanitize

    print(sanitize(text), file=sys.stderr)  # noqa: T201
