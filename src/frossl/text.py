"""Numbers, sizes, times and names formatted for people."""

from __future__ import annotations

import math
import unicodedata
from pathlib import Path

UNPRINTABLE_CATEGORIES = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that control a terminal, change its direction, or cannot be encoded."""


def sanitize(text: str) -> str:
    """Return `text` as one line that is safe in a terminal: unprintable characters become escapes such as
    `\\n`, `\\u202e` or `\\udcff`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in UNPRINTABLE_CATEGORIES else c for c in text)


def sanitize_lines(text: str) -> str:
    """Sanitize each line of a text, keeping its line breaks."""
    return "\n".join(map(sanitize, text.split("\n")))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def encodable(text: str, encoding: str) -> str:
    """Return `text` with an escape for every character that `encoding` cannot represent."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def split_method(method: str) -> tuple[Path, str] | None:
    """Return file and class of a method that is given as `FILE.py:NAME`; None for a method given by name."""
    file, colon, name = method.rpartition(":")
    return (Path(file), name) if colon and file.endswith(".py") and name.isidentifier() else None


def method_title(method: str) -> str:
    """Return the name of a method for display; `NAME (FILE.py)`, without its folder, if it is in a file."""
    parts = split_method(method)
    return method if parts is None else f"{parts[1]} ({parts[0].name})"


def clock(seconds: float) -> str:
    """Format a duration as `4:06`, `2:04:06` or, from 48 hours on, `3 d 2 h`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def gigabytes(count: float) -> str:
    """Format a number of bytes as `1.5 GB` (10⁹ bytes)."""
    return f"{count / 1e9:.1f} GB"


def number(value: float) -> str:
    """Format a number with as many digits as a comparison needs: `-1.979`, `20.880`, `1.2e+06`."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e5 or 0 < size < 1e-3:
        return f"{value:.2g}"
    return f"{value:.3f}" if size < 1000 else f"{value:,.1f}"
