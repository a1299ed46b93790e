"""The browser that the tests of pages share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="NOT TESTED, no playwright: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip(
            f"NOT TESTED, no browser: none of {', '.join(BROWSERS)} is on PATH (apt-get install chromium)"
        )
    with playwright.sync_playwright() as started:
        args = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root without
        browser = started.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()
