"""docs/methods.md is what its generator prints."""

from __future__ import annotations

import runpy

from tests.support import ROOT


def test_the_page_is_up_to_date():
    generated = runpy.run_path(str(ROOT / "docs" / "generate.py"))["methods"]()
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == generated
