"""Run folders: file names, atomic writes, typed records, locks, provenance, verdicts. No torch."""

from frossl.runs.folder import RunFolder, bad_file_lines, is_run
from frossl.runs.lock import FolderLock
from frossl.runs.outcome import outcome, outcome_of
from frossl.runs.provenance import command_line, provenance
from frossl.runs.records import DiagnosticRecord, EvaluationRecord, Status, StepRecord

__all__ = [
    "DiagnosticRecord",
    "EvaluationRecord",
    "FolderLock",
    "RunFolder",
    "Status",
    "StepRecord",
    "bad_file_lines",
    "command_line",
    "is_run",
    "outcome",
    "outcome_of",
    "provenance",
]
