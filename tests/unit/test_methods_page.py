"""Generated pages and tables of the docs are what their generator prints."""

from __future__ import annotations

import runpy

from tests.support import ROOT


def test_generated_pages_are_up_to_date():
    for page, text in runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]().items():
        stored = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert stored == text, f"docs/{page} is out of date; run python docs/generate.py"
