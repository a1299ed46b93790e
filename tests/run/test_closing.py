"""What a run leaves when it has ended: a brief evaluation, a sample of embeddings, a report."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import frossl
from frossl.data import ArraySource, open_dataset
from frossl.evaluation import Labelled, colors
from frossl.reporting import Sample
from tests.support.cli import FROSSL
from tests.support.images import write_image

HOSTILE = "<script>alert(1)<\u2215script> \"'&amp; \u202e\n%s.png"
"""A name with markup, quotes, a newline and a mark that turns the direction of what follows."""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A finished run on images whose names are hostile, in two classes whose names are, too."""
    place = tmp_path_factory.mktemp("closing")
    for i in range(30):
        name = Path("photos") / ("<blink>", 'a"\n')[i % 2] / (HOSTILE % i)
        write_image(place / name, width=24, height=24, seed=i % 2)
        with Image.open(place / name) as picture:  # copies would be on one side of the split
            picture.putpixel((0, 0), (i, i, i))
            picture.save(place / name)
    frossl.pretrain(place / "photos", out=place / "run", epochs=2, batch_size=8, width=0.25, quiet=True)
    return place


def test_the_sample_holds_what_the_encoder_makes_of_the_images(place):
    sample = Sample.read(place / "run" / "sample.npz")
    encoder = frossl.load_encoder(place / "run")
    files = [place / "photos" / name for name in sample.names.tolist()]
    assert len(files) == 30
    assert all(file.is_file() for file in files)
    pixels = torch.stack([torch.from_numpy(np.array(Image.open(file))) for file in files]).permute(0, 3, 1, 2)
    with torch.no_grad():
        features = encoder(pixels)
    np.testing.assert_allclose(sample.features, features, rtol=2e-3, atol=2e-3)
    assert [sample.classes[value] for value in sample.labels] == [file.parent.name for file in files]
    sheet = np.array(Image.open(io.BytesIO(sample.sheet.tobytes()))).astype(float)
    for i in (0, 7, 29):
        row, column = divmod(i, int(sample.columns))
        side = int(sample.side)
        tile = sheet[row * side : (row + 1) * side, column * side : (column + 1) * side]
        drawn = np.array(Image.open(files[i]).resize((side, side), Image.Resampling.BILINEAR))
        assert np.abs(tile - drawn).mean() < 6


def test_a_run_with_labels_says_how_good_it_is(place):
    (record,) = frossl.Run(place / "run").evaluation
    assert record["protocol"] == "kNN, k 20, brief"
    assert set(record["percent"]) == {"pixels", "colors", "untrained", "trained"}
    assert record["percent"]["colors"] == 100.0  # two pictures, twelve near copies of each to learn from


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.tags = 0, set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        kinds = dict(attrs)
        assert not {name for name in kinds if name.startswith("on")}, kinds
        self.scripts += tag == "script" and kinds.get("type") != "application/json"


def test_hostile_names_come_through_index_report_csv_and_terminal_unharmed(place):
    page = (place / "run" / "report.html").read_text(encoding="utf-8")
    reader = Texts()
    reader.feed(page)
    assert reader.scripts == 1  # our own
    assert "blink" not in reader.tags
    assert "\u202e" not in page

    table = place / "list.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for image in sorted((place / "photos").rglob("*.png")):
            writer.writerow([image.relative_to(place), image.parent.name])
    data = open_dataset(table)
    assert sorted(data.train.source.names) == sorted(
        str(p.relative_to(place)) for p in (place / "photos").rglob("*.png")
    )
    assert set(data.train.labels.names) == {"<blink>", 'a"\n'}

    (place / "photos" / "<blink>" / ("bad" + HOSTILE % 0)).write_bytes(b"no image")
    for arguments in (
        ["check", place / "photos"],
        ["watch", place / "run"],
        ["list", "runs", "--under", place],
    ):
        done = subprocess.run([*FROSSL, *arguments], capture_output=True, text=True, check=True)
        assert "\u202e" not in done.stdout, arguments
        assert "\n<" not in done.stdout
    (place / "photos" / "<blink>" / ("bad" + HOSTILE % 0)).unlink()


def test_the_report_is_made_again_without_torch(place):
    before = (place / "run" / "report.html").read_bytes()
    (place / "run" / "report.html").unlink()
    code = (
        "import sys; import frossl; frossl.report(sys.argv[1]);"
        "sys.exit(str({'torch', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, place / "run"], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == "set()"
    assert (place / "run" / "report.html").read_bytes() == before


def test_a_run_that_was_stopped_has_a_report_and_gets_its_sample_when_asked(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    run = frossl.pretrain(photos, out=tmp_path / "run", width=0.25, quiet=True)
    assert (run.path / "report.html").is_file()
    assert not (run.path / "sample.npz").exists()
    frossl.report(run.path, out=tmp_path / "page.html")
    assert len(Sample.read(run.path / "sample.npz").ids) == 12
    assert "sample" in (tmp_path / "page.html").read_text()


def test_a_run_that_failed_leaves_a_report(tmp_path):
    done = subprocess.run(
        [*FROSSL, "pretrain", "cifar10-mini", "--recipe", "demo", "--lr", "1e30", "--out", tmp_path / "run"],
        capture_output=True, text=True, check=False, env={**os.environ, "FROSSL_MAX_STEPS": "12"},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"
    assert "diverging" in (tmp_path / "run" / "report.html").read_text()


def test_color_statistics_are_histograms_that_no_shuffle_of_pixels_changes():
    images = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
    shuffled = images.flatten(2)[:, :, torch.randperm(64)].view_as(images)
    rows = [colors(Labelled(ArraySource(x), torch.arange(5), torch.zeros(5))) for x in (images, shuffled)]
    assert torch.equal(rows[0][0], rows[1][0])
    by_hand = np.sqrt(np.histogram(images[2, 1].numpy(), bins=16, range=(0, 256))[0] / 64)
    np.testing.assert_allclose(rows[0][0][2, 16:32], by_hand, rtol=1e-6)
