"""Run folders: names, atomic files, JSON lines, provenance. No torch."""

from frossl.runs.folder import RunFolder
from frossl.runs.provenance import provenance

__all__ = ["RunFolder", "provenance"]
