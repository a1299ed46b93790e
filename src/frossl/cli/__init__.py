"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys

import typer

from frossl.cli.commands import app
from frossl.errors import FrosslError

__all__ = ["app", "main"]

INTERRUPTED = 130


def main() -> None:
    """Run the command line: 0 done, 2 bad input, 1 failure, 130 interrupted."""
    try:
        code = app(standalone_mode=False)
    except FrosslError as error:
        _say(f"frossl: {error}")
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
    sys.exit(code or 0)


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
