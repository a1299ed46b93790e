"""report.html in a real browser: it answers to pointer and keyboard, in both themes, at both widths."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from frossl.reporting import write_report
from frossl.reporting.charts import number
from frossl.runs import RunFolder
from tests.support import ROOT
from tests.support.reports import HOSTILE, sample, tile_colors, write_run

AXE = Path(os.environ.get("FROSSL_AXE", ROOT / ".venv/axe/node_modules/axe-core/axe.min.js"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """One run with 3,000 images and names that want to be markup; and two runs beside each other."""
    folder = tmp_path_factory.mktemp("runs")
    one, other = write_run(folder / HOSTILE[1].replace("/", "")), write_run(folder / "b", method="vicreg")
    sample(3000, classes=("cat", "dog", "ship", HOSTILE[0]), names=HOSTILE).write(one / "sample.npz")
    return {
        "run": write_report([one], folder / "report.html"),
        "comparison": write_report([one, other], folder / "comparison.html"),
        "folder": one,
    }


class Visit:
    """A page, and all that it complained about or asked for."""

    def __init__(self, browser, path: Path, *, width: int = 1280, theme: str = "light") -> None:
        size = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
        self.page, self.said, self.asked = self.context.new_page(), [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.uri = path.as_uri()

    def close(self) -> None:
        """Nothing was said and nothing was fetched, whatever was done with the page."""
        self.context.close()
        assert self.said == []
        assert [url for url in self.asked if not url.startswith("data:")] == [self.uri]

    def map_data(self) -> dict:
        return json.loads(self.page.locator("#map script").text_content())


@pytest.fixture
def visit(browser, pages) -> Iterator:
    opened: list[Visit] = []

    def open_page(name: str = "run", **how) -> Visit:
        opened.append(Visit(browser, pages[name], **how))
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


PAPER = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
WIDTH = "document.documentElement.scrollWidth"


@pytest.mark.parametrize("name", ["run", "comparison"])
def test_a_page_fits_its_width_in_both_themes(visit, name):
    page = visit(name).page
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert (sum(page.evaluate(PAPER)) > 600) == (theme == "light")
    assert page.evaluate(WIDTH) == 1280
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate(WIDTH) == 390
    page.evaluate(OPEN)
    assert page.evaluate(WIDTH) == 390


def test_the_button_changes_the_theme_by_keyboard(visit):
    page = visit(theme="dark").page
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert sum(page.evaluate(PAPER)) > 600
    page.keyboard.press("Space")
    assert sum(page.evaluate(PAPER)) < 150


@pytest.mark.skipif(
    not AXE.is_file(), reason="NOT TESTED, no axe-core: npm install --prefix .venv/axe axe-core"
)
@pytest.mark.parametrize("name", ["run", "comparison"])
def test_axe_finds_nothing_serious(visit, name):
    page = visit(name).page
    page.evaluate(OPEN)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for theme, width in (("light", 1280), ("dark", 390)):
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        assert found["passes"]
        bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in bad] == []


def test_a_chart_tells_the_values_under_the_cursor_and_by_arrow_keys(visit, pages):
    page = visit().page
    records = list(RunFolder(pages["folder"]).metrics)
    chart = page.locator("figure.chart", has_text="Loss and its parts")
    plot, value = chart.locator("svg.plot.by-epochs"), chart.locator(".key b").first
    last = value.text_content()
    assert last == number(records[-1]["loss"])
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.13 * box["width"], box["y"] + 50)  # left of the first record
    assert value.text_content() == number(records[0]["loss"])
    page.mouse.move(0, 0)
    assert value.text_content() == last
    page.keyboard.press("Tab")  # so that focus is that of a keyboard
    plot.focus()
    page.keyboard.press("ArrowLeft")
    assert value.text_content() == number(records[-2]["loss"])
    assert number(records[-2]["loss"]) in plot.get_attribute("aria-valuetext")
    page.keyboard.press("Home")
    assert value.text_content() == number(records[0]["loss"])


def test_epochs_or_minutes_by_keyboard(visit):
    page = visit().page
    shown = lambda: page.locator("svg.plot.by-epochs").first.is_visible()  # noqa: E731
    assert shown()
    page.locator("#across-epochs").focus()
    page.keyboard.press("ArrowRight")
    assert not shown()
    assert page.locator("svg.plot.by-minutes").first.is_visible()


def color_of(element) -> np.ndarray:
    """The mean color in the middle of what is seen of it."""
    with Image.open(io.BytesIO(element.screenshot())) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=float)
    height, width = pixels.shape[:2]
    return pixels[height // 3 : -height // 3, width // 3 : -width // 3].mean((0, 1))


def lonely(data: dict) -> list[int]:
    """Points by how far they are from all others, farthest first."""
    points = np.stack([data["x"], data["y"]], 1)
    far = np.linalg.norm(points[:, None] - points, axis=2) + 1e9 * np.eye(len(points))
    return np.argsort(-far.min(1)).tolist()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_map_shows_the_image_under_the_pointer(visit, width):
    one = visit(width=width)
    page, data = one.page, one.map_data()
    plot, card = page.locator(".map > svg"), page.locator(".card")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    for i in lonely(data)[:4]:
        scale = box["width"] / data["width"]
        page.mouse.move(box["x"] + data["x"][i] * scale, box["y"] + data["y"][i] * scale)
        assert card.locator(".file").text_content() == data["name"][i]
        assert card.locator("b").text_content() == data["label"][i]
        assert color_of(card.locator(".tile")) == pytest.approx(tile_colors(3000)[i], abs=14)
    assert page.evaluate(WIDTH) == width


def test_arrow_keys_walk_to_the_nearest_point_that_way_and_enter_pins_it(visit):
    one = visit()
    page, data = one.page, one.map_data()
    points = np.stack([data["x"], data["y"]], 1)
    file, card = page.locator(".card .file"), page.locator(".card")
    page.locator(".legend button").last.focus()
    page.keyboard.press("Tab")
    at = data["name"].index(file.text_content())
    for key, way in (
        ("ArrowRight", (1, 0)),
        ("ArrowDown", (0, 1)),
        ("ArrowLeft", (-1, 0)),
        ("ArrowUp", (0, -1)),
    ) * 3:
        away = points - points[at]
        along, aside = away @ np.array(way), np.abs(away @ np.array(way[::-1]))
        reachable = np.flatnonzero((along > 0) & (aside <= along))
        nearest = reachable[np.argmin(np.linalg.norm(away[reachable], axis=1))]
        page.keyboard.press(key)
        at = data["name"].index(file.text_content())
        assert np.linalg.norm(away[at]) == pytest.approx(np.linalg.norm(away[nearest]))
        assert data["name"][at] in page.locator("#map-said").text_content()
    page.keyboard.press("Enter")
    assert "pinned" in card.get_attribute("class")
    plot = page.locator(".map > svg").bounding_box()
    page.mouse.move(plot["x"] + plot["width"] / 2, plot["y"] + plot["height"] / 2)
    assert file.text_content() == data["name"][at]
    page.keyboard.press("Escape")
    assert card.is_hidden()


def test_the_legend_takes_classes_from_the_map(visit):
    one = visit()
    page, data = one.page, one.map_data()
    page.locator(".legend button", has_text="none").click()
    dog = page.locator(".legend button", has_text="dog")
    assert dog.get_attribute("aria-pressed") == "false"
    dog.focus()
    page.keyboard.press("Enter")
    assert dog.get_attribute("aria-pressed") == "true"
    group = int(dog.get_attribute("data-group"))
    shown = [path.is_visible() for path in page.locator(".map > svg path").all()]
    assert [i for i, seen in enumerate(shown) if seen] == [group]
    page.locator(".map").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
        assert page.locator(".card b").text_content() == "dog"
    assert data["label"].count("dog") == 750


def test_each_neighbour_shows_its_own_thumbnail(visit):
    page = visit().page
    data = {name: i for i, name in enumerate(f"photos/{i}.jpg" for i in range(-len(HOSTILE), 3000))}
    tiles = page.locator(".neighbours .tile")
    assert tiles.count() == 70
    for tile in (tiles.nth(i) for i in (1, 13, 36, 69)):
        i = data[tile.get_attribute("aria-label").rpartition(", ")[2]]
        assert color_of(tile) == pytest.approx(tile_colors(3000)[i], abs=14)
