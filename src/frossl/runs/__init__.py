"""Run folders: file names, atomic writes, records in JSON lines, locks, provenance, verdicts. No torch."""

from frossl.runs.folder import RunFolder, bad_file_lines, is_run
from frossl.runs.lock import FolderLock
from frossl.runs.outcome import outcome, outcome_of
from frossl.runs.provenance import command_line, provenance

__all__ = [
    "FolderLock",
    "RunFolder",
    "bad_file_lines",
    "command_line",
    "is_run",
    "outcome",
    "outcome_of",
    "provenance",
]
