"""Cells of a CSV file, escaped so that a spreadsheet does not run text that begins like a formula."""

from __future__ import annotations

import contextlib

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
PATH_ESCAPE = "./"
TEXT_ESCAPE = "'"


def path_cell(path: str) -> str:
    """Return a path as a cell: `./` is prepended if a spreadsheet would take it for a formula."""
    return PATH_ESCAPE + path if _is_formula(path) else path


def text_cell(text: str) -> str:
    """Return text as a cell: an apostrophe is prepended if a spreadsheet would take it for a formula."""
    return TEXT_ESCAPE + text if _is_formula(text) else text


def from_cell(cell: str) -> str:
    """Return the text that `path_cell` or `text_cell` was given."""
    for escape in (PATH_ESCAPE, TEXT_ESCAPE):
        if cell.startswith(escape) and _is_formula(cell.removeprefix(escape)):
            return cell.removeprefix(escape)
    return cell


def _is_formula(text: str) -> bool:
    """Return whether a text begins like a formula and is not a number."""
    if not text.startswith(FORMULA_STARTS):
        return False
    with contextlib.suppress(ValueError):
        float(text)
        return text.startswith(("\t", "\r"))
    return True
