"""Self-contained HTML report of one run or of several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from frossl.errors import InputError
from frossl.reporting.comparison_page import comparison_page
from frossl.reporting.run_data import RunData
from frossl.reporting.run_page import run_page
from frossl.runs.folder import write_atomically


def write_report(runs: Sequence[str | Path], out: Path) -> Path:
    """Write the report of one run, or a page that compares several.

    Args:
        runs: Run folders.
        out: HTML file to write.

    Returns:
        The file.

    Raises:
        InputError: If no run is given, one is given twice, or the file cannot be written.
    """
    if not runs:
        raise InputError("there is no run to report on; name at least one")
    if len({Path(run).resolve() for run in runs}) < len(runs):
        raise InputError("a run is given twice; name each once")
    data = [RunData.read(run) for run in runs]
    html = run_page(data[0]) if len(data) == 1 else comparison_page(data)
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
