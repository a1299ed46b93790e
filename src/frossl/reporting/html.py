"""HTML from Python: what is not markup is escaped, and what cannot be seen is made visible."""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Iterable
from typing import Any, TypeAlias

Child: TypeAlias = "str | int | float | Iterable[Child] | None"

ALONE = frozenset({"meta", "img", "input"})
"""Elements without an end tag; those of SVG have one."""
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of what has no picture: controls, directions, lone surrogates, separators of lines."""
JOINERS = "\u200c\u200d"
"""Of emoji and of scripts whose letters join: harmless."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def visible(text: str, *, keep: str = "") -> str:
    """Newlines, marks that turn text around and bytes that are not UTF-8, as escapes that can be read."""
    if text.isascii() and text.isprintable():
        return text
    keep += JOINERS
    return "".join(
        _escaped(char) if unicodedata.category(char) in HIDDEN and char not in keep else char for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def escaped(text: str, *, keep: str = "") -> Markup:
    return text if isinstance(text, Markup) else Markup(html.escape(visible(text, keep=keep)))


def joined(*children: Child) -> Markup:
    """One after the other; None is nothing."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, str):
            parts.append(escaped(child))
        elif isinstance(child, (int, float)):
            parts.append(str(child))
        elif child is not None:
            parts.append(joined(*child))
    return Markup("".join(parts))


def tag(name: str, /, *children: Child, **attributes: Any) -> Markup:
    """An element. `class_` and `aria_label` stand for class and aria-label; None and False leave one out."""
    written = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{written}>" if name in ALONE else f"<{name}{written}>{joined(*children)}</{name}>")


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def embedded_json(value: Any, **attributes: Any) -> Markup:
    """A block of data that no script, comment or markup inside can end. Strings must be visible already."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return tag("script", Markup(text), type="application/json", **attributes)
