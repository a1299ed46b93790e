"""`frossl watch`: a run in a second terminal."""

from __future__ import annotations

from typing import Annotated

import typer


def watch(
    run: Annotated[str, typer.Argument(help="A run folder")],
    once: Annotated[bool, typer.Option("--once", help="Show how it is now, and leave")] = False,
) -> int:
    """How does it go? Look at a run from another terminal, until it ends; Ctrl-C leaves it alone."""
    from frossl import live

    live.watch(run, once=once)
    return 0
