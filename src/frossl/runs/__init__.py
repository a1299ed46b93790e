"""Run folders: names, atomic files, JSON lines, provenance. No torch."""

from frossl.runs.folder import RunFolder
from frossl.runs.provenance import command_line, provenance

__all__ = ["RunFolder", "command_line", "provenance"]
