"""HTML built in Python: text is escaped, and invisible characters are made visible."""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Iterable
from typing import Any, TypeAlias

Child: TypeAlias = "str | int | float | Iterable[Child] | None"

VOID_ELEMENTS = frozenset({"meta", "img", "input"})
"""HTML elements without an end tag; SVG elements have one."""
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of invisible characters: controls, directions, lone surrogates, line separators."""
JOINERS = "\u200c\u200d"
"""Zero-width joiners, which emoji and some scripts need; they are harmless."""


class Markup(str):
    """String that is already HTML and is not escaped again."""

    __slots__ = ()


def visible(text: str, *, keep: str = "") -> str:
    """Return the text with invisible characters escaped: newlines, direction marks, bytes that are not UTF-8.

    Args:
        text: Any text.
        keep: Characters to leave as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    keep += JOINERS
    return "".join(
        _escaped(char) if unicodedata.category(char) in HIDDEN_CATEGORIES and char not in keep else char
        for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def escaped(text: str, *, keep: str = "") -> Markup:
    """Escape text for HTML; `Markup` is returned unchanged."""
    return text if isinstance(text, Markup) else Markup(html.escape(visible(text, keep=keep)))


def joined(*children: Child) -> Markup:
    """Concatenate children, escaping text; None is skipped and iterables are flattened."""
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
    """Return an element.

    Args:
        name: Name of the element.
        children: Content, as in `joined`.
        attributes: Attributes; `class_` and `aria_label` stand for class and aria-label, and those that are
            None or False are left out.
    """
    written = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(
        f"<{name}{written}>" if name in VOID_ELEMENTS else f"<{name}{written}>{joined(*children)}</{name}>"
    )


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def embedded_json(value: Any, **attributes: Any) -> Markup:
    """Return a script element with JSON data that no script, comment or markup inside can end.

    Strings in `value` must already be visible (see `visible`).
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return tag("script", Markup(text), type="application/json", **attributes)
