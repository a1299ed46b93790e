"""Numbers and names as a person reads them."""

from __future__ import annotations

import math
import unicodedata

UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
"""Kinds of characters that steer a terminal, turn its direction, or cannot be encoded."""


def harmless(text: str) -> str:
    """One line that can do nothing to a terminal: what cannot be seen becomes `\\n`, `\\u202e`, `\\udcff`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in UNSEEN else c for c in text)


def harmless_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(map(harmless, text.split("\n")))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def encodable(text: str, encoding: str) -> str:
    """What `encoding` cannot say, by its number."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def clock(seconds: float) -> str:
    """`4:06`, `2:04:06`, `3 d 2 h`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def number(value: float) -> str:
    """`-1.979`, `20.88`, `1.2e+06`: so many digits as can be compared."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e5 or 0 < size < 1e-3:
        return f"{value:.2g}"
    return f"{value:.3f}" if size < 1000 else f"{value:,.1f}"
