"""Text in cells of a CSV file: a spreadsheet computes what begins like a formula, whoever wrote it."""

from __future__ import annotations

import contextlib

FORMULA = ("=", "+", "-", "@", "\t", "\r")
HERE, TEXT = "./", "'"


def path_cell(path: str) -> str:
    """The same path, written so that no spreadsheet computes it."""
    return HERE + path if _computes(path) else path


def text_cell(text: str) -> str:
    """Text with an apostrophe before what a spreadsheet would compute."""
    return TEXT + text if _computes(text) else text


def from_cell(cell: str) -> str:
    """Read back the text that `path_cell` or `text_cell` was given."""
    for mark in (HERE, TEXT):
        if cell.startswith(mark) and _computes(cell.removeprefix(mark)):
            return cell.removeprefix(mark)
    return cell


def _computes(text: str) -> bool:
    """Like a formula, and no number."""
    if not text.startswith(FORMULA):
        return False
    with contextlib.suppress(ValueError):
        float(text)
        return text.startswith(("\t", "\r"))
    return True
