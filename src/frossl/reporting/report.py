"""One page about a run, or about several: everything inside, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from frossl.errors import InputError
from frossl.reporting.facts import Facts
from frossl.reporting.several import comparison_page
from frossl.reporting.single import run_page
from frossl.runs.folder import write_atomically


def write_report(runs: Sequence[str | Path], out: Path) -> Path:
    """One run: its report. Several: a page that compares them."""
    if not runs:
        raise InputError("there is no run to report on; name at least one")
    if len({Path(run).resolve() for run in runs}) < len(runs):
        raise InputError("a run is given twice; name each once")
    facts = [Facts.read(run) for run in runs]
    html = run_page(facts[0]) if len(facts) == 1 else comparison_page(facts)
    out = Path(out)
    if out.is_dir():
        raise InputError(f"{out} is a folder; give the name of a file, such as {out / 'report.html'}")
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}; make it, or choose another --out")
    try:
        write_atomically(out, lambda file: file.write(html.encode()))
    except OSError as error:
        raise InputError(f"cannot write {out} ({error.strerror}); choose another --out") from None
    return out
