"""Run folders: names, atomic files, JSON lines, provenance. No torch."""

from frossl.runs.folder import RunFolder, bad_file_lines
from frossl.runs.outcome import outcome, outcome_of
from frossl.runs.provenance import command_line, provenance

__all__ = ["RunFolder", "bad_file_lines", "command_line", "outcome", "outcome_of", "provenance"]
