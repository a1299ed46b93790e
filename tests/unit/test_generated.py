"""What docs/generate.py writes is up to date, and follows from the registry of objectives."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from frossl.objectives import OBJECTIVES
from tests.support import ROOT

COMMAND = "python docs/generate.py"
FILES = ("docs/methods.md", "docs/api.md", "src/frossl/__init__.pyi")


def generated() -> dict[Path, str]:
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))["generated"]()


def test_everything_generated_is_up_to_date():
    for path, text in generated().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date; run: {COMMAND}"


@pytest.mark.parametrize("file", FILES)
def test_a_new_objective_is_in_every_generated_file_under_its_names(file, monkeypatch):
    class OurLoss(OBJECTIVES["vicreg"]):
        """A new objective."""

    def our_loss(z): ...

    our_loss.__doc__ = OurLoss.function.__doc__
    monkeypatch.setattr(OurLoss, "function", staticmethod(our_loss))
    monkeypatch.setitem(OBJECTIVES, "our", OurLoss)
    before, after = (ROOT / file).read_text(encoding="utf-8"), generated()[ROOT / file]
    added = set(after.splitlines()) - set(before.splitlines())
    assert set(before.splitlines()) <= set(after.splitlines())
    assert any("OurLoss" in line for line in added)
    assert any("our_loss" in line or "(#our)" in line for line in added)
    if file.endswith(".pyi"):
        ast.parse(after)


def test_a_file_without_marks_is_refused(tmp_path):
    filled = runpy.run_path(str(ROOT / "docs" / "generate.py"))["filled"]
    page = tmp_path / "page.md"
    page.write_text("# names: written by hand\n# end of names\nbelow\n")
    assert filled(page, {"names": "a\n"}) == "# names: written by hand\na\n# end of names\nbelow\n"
    with pytest.raises(ValueError, match="has 0 blocks of colors"):
        filled(page, {"colors": "a\n"})
