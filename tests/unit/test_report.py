"""report.html without a browser: what is in it, what can never get into it, and what it does without."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from frossl.errors import InputError
from frossl.reporting import Sample, write_report
from frossl.reporting.charts import Scale, number, shape_of
from frossl.reporting.html import embedded_json, tag, visible
from frossl.reporting.sample import SHEET_BYTES, nearest, spread_queries
from frossl.runs import RunFolder
from tests.support.reports import HOSTILE, jpeg, sample, write_run

VOID = {"meta", "img", "input"}


class Page(HTMLParser):
    """Elements with their attributes, the text of each section, and whether every tag is closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: dict[str, str] = {}
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.section = "header"
        self.html = path.read_text(encoding="utf-8")
        self.feed(self.html)
        assert not self.open

    def handle_starttag(self, name, attributes):
        has = dict(attributes)
        self.elements.append((name, has))
        if name == "section":
            self.section = has["id"]
        if name == "script":
            self.scripts.append((has, ""))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        else:
            self.text[self.section] = self.text.get(self.section, "") + data

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [has for found, has in self.elements if found == name]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = write_run(tmp_path_factory.mktemp("runs") / "whole")
    sample(90).write(path / "sample.npz")
    return path


def report(*runs: Path) -> Page:
    return Page(write_report(runs, runs[0] / "report.html"))


def test_a_whole_run_has_every_section_in_order_and_headings_that_do_not_skip(run):
    page = report(run)
    sections = [has["id"] for has in page.all("section")]
    assert sections == ["accuracy", "curves", "spectra", "views", "neighbours", "map", "time", "origin"]
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    links = {has["href"] for has in page.all("a")}
    assert links <= {f"#{has['id']}" for _, has in page.elements if has.get("id")}
    ids = [has["id"] for _, has in page.elements if has.get("id")]
    assert len(ids) == len(set(ids))


def test_the_numbers_of_the_run_are_said(run):
    page = report(run)
    header = page.text["header"]
    for said in ("whole", "finished at step 400 of 400", "learning: the loss falls", "go on", "1,000"):
        assert said in header
    assert "better than pixels and untrained" in header
    assert "45.0%" in header
    assert "pixels 30.0, untrained 25.0" in header
    assert "42.0–48.0" in page.text["accuracy"]
    assert "resnet18" in page.text["accuracy"]
    assert "70 ms" in page.text["time"]  # seven parts of ten
    assert "1.50 GB" in page.text["time"]
    assert "batch_size = 50" in page.text["origin"]
    assert "0123abcd" in page.text["origin"]
    assert "saturates at step" in page.text["spectra"]


def test_only_the_newest_record_of_a_protocol_is_shown(run, tmp_path):
    path = write_run(tmp_path / "again")
    RunFolder(path).evaluation.append(
        {
            "step": 400,
            "data": "photos",
            "protocol": "kNN, k 20",
            "percent": {"trained": 77.7},
            "interval": {"trained": [70.0, 80.0]},
        }
    )
    text = report(path).text
    assert "77.7%" in text["header"]
    assert "45.0" not in text["accuracy"]


def test_curves_go_through_what_was_recorded(run):
    page = report(run)
    records = list(RunFolder(run).metrics)
    loss = next(
        curve
        for has, text in page.scripts
        if has.get("type") == "application/json" and isinstance(json.loads(text), list)
        for curve in json.loads(text)
        if curve["name"] == "loss"
    )
    assert loss["text"] == [number(record["loss"]) for record in records]
    heights, values = np.array(loss["y"]), np.array([record["loss"] for record in records])
    assert np.corrcoef(heights, values)[0, 1] < -0.9999  # SVG counts downwards
    for across, times in (
        ("epochs", [r["step"] / 20 for r in records]),
        ("minutes", [r["seconds"] for r in records]),
    ):
        assert np.corrcoef(loss["x"][across], times)[0, 1] > 0.9999


def test_parts_of_the_loss_are_those_that_sum_to_it(run):
    keys = [text for has, text in report(run).scripts if has.get("type") == "application/json"]
    names = {curve["name"] for text in keys if text.startswith("[") for curve in json.loads(text)}
    assert {"loss", "invariance", "variance"} <= names
    assert "effective rank" not in names


def test_nothing_is_fetched_and_only_our_script_may_run(run):
    page = report(run)
    policy = next(g["content"] for g in page.all("meta") if g.get("http-equiv") == "Content-Security-Policy")
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    assert allowed["img-src"] == "data:"
    (script,) = [text for has, text in page.scripts if not has.get("type")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert allowed["script-src"] == f"'sha256-{digest}'"
    assert not page.all("link")
    for _, has in page.elements:
        assert not any(name.startswith("on") for name in has)
        assert (has.get("src") or "data:").startswith("data:")
        assert (has.get("href") or "#").startswith("#")
    assert not re.search(r"(?:src|href)\s*=\s*.?https?:|url\(.?http|@import", page.html)


def test_a_hostile_name_is_text_wherever_it_stands(tmp_path):
    clean = write_run(tmp_path / "clean")
    sample(60, classes=tuple("abcdefg")).write(clean / "sample.npz")
    path = write_run(tmp_path / "<b>run & co", source=HOSTILE[0])
    sample(60, classes=HOSTILE, names=HOSTILE).write(path / "sample.npz")
    folder = RunFolder(path)
    verdict = {"kind": HOSTILE[0], "reason": HOSTILE[1], "advice": HOSTILE[4]}
    folder.write_status("failed", step=1, total=2, reason=HOSTILE[5], verdict=verdict)
    folder.write_json(
        "provenance.json", {"command": "\n".join(HOSTILE), "images": 1000, "hardware": {"cpu": HOSTILE[1]}}
    )
    folder.evaluation.append(
        {
            "step": 400,
            "protocol": HOSTILE[1],
            "data": HOSTILE[0],
            "note": HOSTILE[5],
            "percent": {HOSTILE[0]: 5.0},
        }
    )
    (path / "config.toml").write_text((path / "config.toml").read_text() + f"\n# {HOSTILE[1]} {HOSTILE[3]}\n")
    page, plain = report(path), report(clean)
    known = {(name, key) for name, has in plain.elements for key in ("", *has)}
    assert {(name, key) for name, has in page.elements for key in ("", *has)} <= known
    assert len(page.scripts) <= len(plain.scripts)
    assert page.text["neighbours"].count("<script>alert(1)</script>") >= 1
    assert "\u202e" not in page.html
    assert "\\u202egnp.exe" in page.html
    assert "byte \\udcff.png" in page.text["neighbours"] + page.html
    assert "two\\nlines" in page.text["map"]


@given(st.text(alphabet=st.characters(), max_size=40))
def test_any_text_survives_as_text_and_as_data(text):
    class Reader(HTMLParser):
        seen = ""
        has = None

        def handle_starttag(self, name, attributes):
            assert name == "p"
            self.has = dict(attributes)

        def handle_data(self, data):
            self.seen += data

    reader = Reader()
    reader.feed(tag("p", text, title=text).encode().decode())
    reader.close()
    assert reader.seen == visible(text)
    assert reader.has == {"title": visible(text)}
    data = embedded_json([visible(text)])
    assert not set("<>&\u2028\u2029") & set(
        data.removeprefix('<script type="application/json">').removesuffix("</script>")
    )
    assert json.loads(data.partition(">")[2].removesuffix("</script>")) == [visible(text)]


def test_neighbours_are_those_that_loops_find(run):
    features = Sample.read(run / "sample.npz").features
    found = nearest(features, [0, 17, 89])
    for query, row in zip((0, 17, 89), found, strict=True):
        a = features[query].astype(np.float64)
        cosines = {
            i: float(a @ b) / float(np.sqrt(a @ a) * np.sqrt(b @ b))
            for i, b in enumerate(features.astype(np.float64))
            if i != query
        }
        assert row.tolist() == sorted(cosines, key=lambda i: -cosines[i])[:6]


def test_neighbours_of_dead_features_are_others_and_no_warning(run):
    features = np.zeros((4, 3), np.float16)
    features[1] = np.inf
    assert {2, 3} <= set(nearest(features, [0])[0].tolist())
    assert 0 not in nearest(features, [0])[0]


def test_each_neighbour_is_said_to_share_the_label_or_not(run):
    known = Sample.read(run / "sample.npz")
    label = {f"photos/{i}.jpg": known.label(i) for i in range(len(known))}
    tiles = [g["aria-label"] for g in report(run).all("span") if g.get("class") == "tile" and g.get("role")]
    query, same, seen = None, 0, 0
    for told in tiles:
        kind, name, file = told.split(", ")
        assert label[file] == name
        if kind == "query":
            query = name
        else:
            assert kind == ("same label" if name == query else "different label")
            same, seen = same + (name == query), seen + 1
    assert f"{same} of {seen} neighbours" in report(run).text["neighbours"]
    assert seen == 60


@pytest.mark.parametrize("groups", [1, 3, 10, 37])
def test_queries_come_from_all_groups_and_are_always_the_same(groups):
    labels = np.arange(200) % groups
    chosen = spread_queries(labels)
    assert len(chosen) == len(set(chosen)) == 10
    assert len({labels[i] for i in chosen}) == min(10, groups)
    assert chosen == spread_queries(labels)
    assert spread_queries(np.array([4])) == [0]


def test_a_sample_is_read_as_it_was_written(tmp_path):
    written = replace(sample(7), names=np.array(HOSTILE))
    written.write(tmp_path / "sample.npz")
    read = Sample.read(tmp_path / "sample.npz")
    for field in fields(Sample):
        a, b = getattr(written, field.name), getattr(read, field.name)
        assert np.array_equal(a, b)
        assert type(a) is type(b)


def test_a_sample_that_does_not_fit_together_is_refused():
    one = sample(5)
    for wrong in (
        {"names": one.names[:3]},
        {"labels": np.full(5, 9)},
        {"map": one.map[:, :1]},
        {"columns": 0},
        {"features": one.features.astype(np.int64)},
        {"ids": one.ids[:0]},
    ):
        with pytest.raises(InputError):
            replace(one, **wrong)


def test_a_full_sample_stays_small(tmp_path):
    path, side = write_run(tmp_path / "full"), 48
    names = [f"{i:05d} " + "x" * 60 for i in range(3000)]
    one = sample(3000, classes=[f"class {i}" for i in range(100)], names=names)
    noise = np.random.default_rng(0).integers(0, 256, (one.rows * side, one.columns * side, 3), np.uint8)
    sheet = np.frombuffer(jpeg(noise), np.uint8)
    assert len(sheet) > 8 * SHEET_BYTES  # worse than any photographs
    replace(one, sheet=sheet, side=side).write(path / "sample.npz")
    out = write_report([path], path / "report.html")
    assert out.stat().st_size < 3.5e6
    with Image.open(io.BytesIO(Sample.read(path / "sample.npz").page_sheet())) as small:
        assert small.width % one.columns == small.height % one.rows == 0


def test_a_large_sheet_of_views_is_scaled_down(tmp_path):
    path = write_run(tmp_path / "views")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (900, 1400, 3), np.uint8)).save(
        path / "views.png"
    )
    (image,) = report(path).all("img")
    assert image["src"].startswith("data:image/jpeg;base64,")
    assert (image["width"], image["height"]) == ("1000", "643")
    assert image["alt"]


def torn(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("how", [None, torn, lambda _: b"", lambda _: b"\x00\xff nonsense {"])
@pytest.mark.parametrize(
    "name",
    [
        "status.json",
        "provenance.json",
        "metrics.jsonl",
        "diagnostics.jsonl",
        "evaluation.jsonl",
        "views.png",
        "sample.npz",
        "config.toml",
    ],
)
def test_what_is_missing_or_damaged_is_left_out_and_the_rest_is_there(run, tmp_path, name, how):
    if name == "config.toml" and how is None:
        with pytest.raises(InputError, match="no run"):
            write_report([tmp_path / "nothing"], tmp_path / "report.html")
        return
    path = Path(shutil.copytree(run, tmp_path / "run"))
    content = (path / name).read_bytes()
    if how is None:
        (path / name).unlink()
    else:
        (path / name).write_bytes(how(content))
    assert len(report(path).all("section")) == 8
    both = report(path, run)
    assert len(both.all("section")) == 5
    assert "whole" in both.text["header"]


def test_a_sample_with_a_flipped_bit_is_read_or_refused_and_nothing_else(tmp_path):
    path, random = tmp_path / "sample.npz", np.random.default_rng(0)
    sample(20).write(path)
    whole = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[random.integers(len(damaged))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):
            assert Sample.read(path).page_sheet()


def test_a_sample_is_never_unpickled(tmp_path):
    path = write_run(tmp_path / "run")
    arrays = {field.name: np.asarray(getattr(sample(5), field.name)) for field in fields(Sample)}
    np.savez(path / "sample.npz", **{**arrays, "names": np.array([print] * 5, dtype=object)})
    assert "damaged" in report(path).text["map"]


def test_runs_beside_each_other(tmp_path):
    runs = [
        write_run(tmp_path / "a", seed=1),
        write_run(tmp_path / "b", method="vicreg"),
        write_run(tmp_path / "c" / "a"),
    ]
    page = report(*runs)
    text = page.text
    assert "no ranking" in text["accuracy"].lower()
    for said in ("objective.method", "vicreg", "train.seed"):
        assert said in text["differences"]
    assert "batch_size" not in text["differences"]
    assert str(runs[2]) in text["runs"]  # two have one name
    curves = [json.loads(content) for has, content in page.scripts if has.get("type")]
    assert all(len(chart) == 3 for chart in curves if len(chart[0]["x"]) == 2)


def test_runs_without_a_common_accuracy_are_compared_in_the_rest(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    for path in (a, b):
        (path / "evaluation.jsonl").unlink()
    looks = [{k: v for k, v in look.items() if k != "knn"} for look in RunFolder(b).diagnostics]
    (b / "diagnostics.jsonl").write_text("".join(json.dumps(look) + "\n" for look in looks))
    text = report(a, b).text
    assert "no accuracy in common" in text["accuracy"]
    assert "Effective rank of the projections" in text["curves"]


def test_a_run_that_never_took_a_step_has_a_page(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    folder.write_text("config.toml", "")
    text = report(tmp_path / "run").text
    assert "no step was taken" in text["header"]
    assert "No step was recorded" in text["curves"]
    assert "Not measured yet" in text["accuracy"]


def test_numbers_that_are_not_finite_do_not_spoil_a_chart(tmp_path):
    path = write_run(tmp_path / "run")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 410, "loss": NaN, "lr": Infinity, "invariance": null, "seconds": 205}\n')
    assert not re.search(r"\bnan\b|\binf\b", re.sub(r"base64,\S+", "", report(path).html), re.IGNORECASE)


def test_wrong_calls_say_what_to_do(run, tmp_path):
    with pytest.raises(InputError, match="at least one"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(InputError, match="twice"):
        write_report([run, run / "."], tmp_path / "report.html")
    with pytest.raises(InputError, match="no folder"):
        write_report([run], tmp_path / "none" / "report.html")
    with pytest.raises(InputError, match="is a folder"):
        write_report([run], tmp_path)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_lie_inside_their_scale_and_are_few(low, width):
    scale = Scale.over([low, low + width])
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 11
    spare = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - spare <= tick <= scale.high + spare for tick in ticks)


@given(st.floats(1e-12, 1e12), st.floats(1.0, 1e9))
def test_ticks_of_a_logarithmic_scale_lie_inside_it(low, times):
    scale = Scale.over([low, low * times], log=True)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 7
    assert all(scale.low <= tick <= scale.high for tick in ticks)
    assert 0 <= scale.place(low) <= scale.place(low * times) <= 1


def test_fifty_classes_look_different():
    assert len({(i % 10, shape_of(i)) for i in range(50)}) == 50


def test_the_report_needs_no_torch(run, tmp_path):
    code = (
        "import sys; from pathlib import Path; from frossl.reporting import write_report;"
        f"write_report([{str(run)!r}], Path({str(tmp_path / 'r.html')!r}));"
        "sys.exit(', '.join({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
