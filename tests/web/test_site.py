"""The documentation as a site: it builds without a warning, links lead somewhere, and it needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import frossl
import frossl.recipes
from tests.support import ROOT

pytest.importorskip("zensical", reason="pip install 'frossl[docs]'")

PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, str]:
    """The site, and what was said while it was made. From a copy, as the site must lie beside its sources."""
    place = tmp_path_factory.mktemp("site")
    for folder in ("docs", "src"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", place)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "build" / "site", done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(built) -> Path:
    return built[0]


class Page(HTMLParser):
    """What a page holds: anchors, links to follow, and addresses that are loaded with it."""

    LOADED = ("script", "link", "img", "iframe", "source", "video", "audio", "embed", "object", "use")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        addresses = [given[name] for name in ("href", "src", "data", "srcset") if name in given]
        if tag == "link" and given.get("rel") in ("prev", "next"):
            self.links += addresses
        elif tag in self.LOADED:
            self.loaded += addresses
        elif tag == "a":
            self.links += addresses
        self.loaded += re.findall(r"url\(([^)]*)\)", given.get("style", ""))


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_it_is_built_without_a_warning(built):
    assert not re.search(r"warning|error|unrecognized", built[1], re.IGNORECASE), built[1]


def test_every_page_is_there_and_can_be_reached_from_home(site, pages):
    home = {urlsplit(link).path for link in pages[site / "index.html"].links}
    for page in PAGES:
        assert (site / f"{page.stem}.html").is_file()
        assert page.stem == "index" or f"{page.stem}.html" in home, page.name


def test_links_and_anchors_lead_somewhere(site, pages):
    lost = []
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses are those of a server's root
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            found = target.is_file() and (not parts.fragment or unquote(parts.fragment) in pages[target].ids)
            if not found or site.resolve() not in target.resolve().parents:
                lost.append(f"{path.name}: {link}")
    assert lost == []


def test_the_checker_of_links_sees_what_is_lost(site, pages):
    methods = pages[site / "methods.html"]
    assert {"frossl", "visreg", "near-collapse"} <= methods.ids
    assert "methods.html#near-collapse" in pages[site / "choosing.html"].links
    assert "nowhere" not in methods.ids


def test_pages_link_to_pages_only():
    """What lies outside docs/ is no part of the site: it is named, not linked."""
    for page in PAGES:
        assert re.findall(r"\]\((?:\.\.|/)[^)]*\)", page.read_text(encoding="utf-8")) == [], page.name


def test_nothing_is_loaded_from_a_network(site, pages):
    for path, page in pages.items():
        loaded = [address for address in page.loaded if not address.startswith("data:")]
        assert loaded
        for address in loaded:
            assert not urlsplit(address).netloc, f"{path.name} loads {address}"
            if path.name != "404.html":
                assert (path.parent / unquote(urlsplit(address).path)).is_file(), f"{path.name}: {address}"
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"(?:@import|url\()\s*[\"']?([^)\"']+)", sheet.read_text(encoding="utf-8")):
            assert not urlsplit(address).netloc, f"{sheet.name} loads {address[:80]}"


def test_the_reference_has_every_public_name(pages, site):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    given = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    in_table = {name for row in re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, re.MULTILINE) for name in row}
    named = in_table | {name.rpartition(".")[2] for name in given}
    assert {*frossl.__all__, *frossl.recipes.__all__} - named == set()
    ids = pages[site / "api.html"].ids
    assert set(given) - {"frossl.objectives"} <= ids
    assert {f"frossl.objectives.{name}" for name in in_table if name.endswith("_loss")} <= ids


class Visit:
    """A page in a browser, and all that it complained about or asked for."""

    def __init__(self, browser, path: Path, *, width: int, theme: str = "light") -> None:
        size = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
        self.page, self.said, self.asked = self.context.new_page(), [], []
        self.page.on("console", self.listen)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri(), wait_until="networkidle")

    def listen(self, message) -> None:
        if message.type in ("error", "warning"):
            self.said.append(message.text)

    def close(self) -> None:
        self.context.close()
        assert self.said == []
        assert [url for url in self.asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


@pytest.fixture
def visit(browser, site) -> Iterator:
    opened: list[Visit] = []

    def open_page(name: str, **how) -> Visit:
        opened.append(Visit(browser, site / f"{name}.html", **how))
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


OVERFLOW = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - window.innerWidth"
PAPER = "getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number)"


@pytest.mark.parametrize("name", ["index", "methods", "api"])
def test_a_page_opens_offline_and_fits_its_width(visit, name):
    page = visit(name, width=390).page
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator("h1").first.is_visible()
        assert page.evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_follows_the_theme_of_the_system(visit, theme):
    page = visit("index", width=1280, theme=theme).page
    assert (sum(page.evaluate(PAPER)) > 600) == (theme == "light")


def test_the_search_works_from_the_file_system(visit):
    page = visit("index", width=1280).page
    page.locator(".md-search__button").click()
    page.keyboard.type("gradient in small memory")
    page.locator("a[href*='scale.html?'][href$='#small-memory']").first.click(timeout=10_000)
    page.wait_for_url(re.compile(r"scale\.html\?.*#small-memory"))
