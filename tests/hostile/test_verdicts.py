"""A verdict says what was measured: runs that did badly are not called learning, and nothing is kept back."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import frossl
from tests.support.cli import call_checked
from tests.support.images import write_image
from tests.support.runs import read_lines, read_status

SMALL = {"width": 0.25, "batch_size": 60, "quiet": True}
STRIPES = 240


def stripes(folder: Path, count: int = STRIPES, size: int = 16) -> Path:
    """Stripes in four directions, a folder for each: raw pixels tell them apart without an error."""
    random, (rows, columns) = np.random.default_rng(0), np.mgrid[0:size, 0:size]
    for i in range(count):
        angle = np.pi * (i % 4) / 4
        wave = np.sin(1.6 * (rows * np.cos(angle) + columns * np.sin(angle)) + random.uniform(0, 2 * np.pi))
        image = random.uniform(60, 200, 3) * (0.75 + 0.35 * wave[..., None]) + random.normal(
            0, 12, (size, size, 3)
        )
        path = folder / str(i % 4) / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """`below`: a run that stays below raw pixels. `forgot`: from its weights, at a rate that breaks them."""
    place = tmp_path_factory.mktemp("verdicts")
    stripes(place / "images")
    below = frossl.pretrain(
        place / "images", out=place / "below", epochs=1, lr=0.001, **SMALL,
        settings={"diagnostics.share": 0.0, "network.stages": 2, "data.eval_size": 16},
    )  # fmt: skip
    frossl.pretrain(
        place / "images", out=place / "forgot", epochs=2, lr=0.5, weights=below.path / "encoder.safetensors",
        **SMALL,
        settings={
            "diagnostics.share": 1.0, "diagnostics.every": 1, "network.stages": 2,
            "network.stem": below.config.network.stem,
        },
    )  # fmt: skip
    return place


def page(path: Path) -> str:
    """The text of a report, without its marks."""
    return unescape(re.sub(r"<[^>]*>", "", path.read_text(encoding="utf-8")))


def verdict(run: Path) -> dict[str, str]:
    return read_status(run)["verdict"]


def by_hand(first: list[bool], second: list[bool]) -> tuple[float, float, float]:
    """Mean and 95% interval of paired differences, in points, with two images more that tell nothing."""
    each = np.array(first, float) - np.array(second, float)
    each, weight = np.append(each, [1, -1, 0]), np.append(np.ones(len(each)), [0.5, 0.5, 1])
    mean = np.average(each, weights=weight)
    error = np.sqrt(np.average((each - mean) ** 2, weights=weight) / weight.sum())
    return 100 * (np.mean(first) - np.mean(second)), 100 * (mean - 1.96 * error), 100 * (mean + 1.96 * error)


def test_a_run_below_raw_pixels_is_told_so_with_number_interval_and_advice(place):
    (record,) = read_lines(place / "below" / "evaluation.jsonl")
    found, percent = verdict(place / "below"), record["percent"]
    assert percent["pixels"] == 100.0
    assert percent["trained"] < 85
    assert found["kind"] == "no better than pixels"
    assert f"{percent['trained']:.1f}%" in found["reason"]
    assert f"({percent['trained'] - 100:+.1f} points, 95% interval" in found["reason"]
    assert "--budget" in found["advice"]


def test_terminal_json_report_and_card_say_the_same_verdict(place, monkeypatch, capsys):
    found = verdict(place / "below")
    assert found["reason"] in page(place / "below" / "report.html")
    assert found["advice"] in page(place / "below" / "report.html")
    card = (place / "below" / "model_card.md").read_text()
    assert f"**{found['kind']}**: {found['reason']}" in card
    assert found["advice"] in card
    out, _ = call_checked(monkeypatch, capsys, "watch", place / "below", "--once")
    assert f"{found['kind']}: {found['reason']}; {found['advice']}" in out
    settings = ["--set", "network.stages=2", "--set", "diagnostics.share=0", "--set", "data.eval_size=16"]
    out, err = call_checked(
        monkeypatch, capsys, "pretrain", place / "images", "--out", place / "again", "--epochs", 1,
        "--lr", 0.001, "--width", 0.25, "--batch-size", 60, "--quiet", "--json", *settings,
    )  # fmt: skip
    assert json.loads(out.splitlines()[-1])["verdict"] == verdict(place / "again") == found
    assert f"verdict: {found['kind']}: {found['reason']}; {found['advice']}" in err


def test_a_run_that_loses_what_its_weights_knew_is_worse_than_it_started(place):
    (record,) = read_lines(place / "forgot" / "evaluation.jsonl")
    found, percent = verdict(place / "forgot"), record["percent"]
    (before,) = read_lines(place / "below" / "evaluation.jsonl")
    assert percent["untrained"] == before["percent"]["trained"]  # it began from those weights
    assert found["kind"] == "worse than it started"
    assert f"the weights it began from have {percent['untrained']:.1f}%" in found["reason"]
    assert "as they were" in found["advice"]
    for file in (place / "forgot" / "report.html", place / "forgot" / "model_card.md"):
        assert found["reason"] in page(file)


def test_the_interval_is_that_of_paired_results(place):
    """Raw pixels are right on every image, so that all that the trained network gets wrong is lost."""
    (record,) = read_lines(place / "forgot" / "evaluation.jsonl")
    images = record["images"]
    right = round(record["percent"]["trained"] / 100 * images)
    points, low, high = by_hand([True] * right + [False] * (images - right), [True] * images)
    assert record["difference"]["pixels"] == pytest.approx(points, abs=0.01)
    assert record["difference_interval"]["pixels"] == pytest.approx([low, high], abs=0.01)


def test_neighbours_below_the_start_three_times_in_a_row_are_called_forgetting(place):
    looks = read_lines(place / "forgot" / "diagnostics.jsonl")
    (before,) = read_lines(place / "below" / "evaluation.jsonl")
    kinds = [look["verdict"] for look in looks]
    assert kinds[:2] == ["warming up"] * 2
    assert set(kinds[2:]) == {"forgetting"}
    assert f"was on {before['percent']['trained']:.1f}% before the first step" in looks[-1]["reason"]
    assert "95% interval" in looks[-1]["reason"]
    assert "--lr" in looks[-1]["advice"]
    assert (
        json.loads((place / "forgot" / "status.json").read_text())["state"] == "finished"
    )  # it does not stop
    assert "while training: forgetting" in verdict(place / "forgot")["training"]


RECORD = {
    "data": None, "protocol": "kNN, k 20", "note": "tested on 20%", "images": 1000,
    "deviation": {}, "interval": {}, "percent": {},
}  # fmt: skip


def measured(run: Path, **percent: float) -> None:
    """Append a whole measurement, as `frossl knn` does, with Wilson's intervals and no results by image."""
    old = read_lines(run / "evaluation.jsonl")[-1]

    def wilson(share: float, n: int = 1000, z: float = 1.96) -> list[float]:
        center, half = (share + z * z / (2 * n)), z * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        return [100 * (center - half) / (1 + z * z / n), 100 * (center + half) / (1 + z * z / n)]

    interval = {row: wilson(value / 100) for row, value in percent.items()}
    record = {**RECORD, "step": old["step"], "data": old["data"], "percent": percent, "interval": interval}
    with (run / "evaluation.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


@pytest.mark.parametrize(
    ("pixels", "untrained", "trained", "kind"),
    [
        (30.0, 25.0, 45.0, "better than pixels and untrained"),
        (44.9, 30.0, 33.6, "no better than pixels"),
        (45.0, 30.0, 46.0, "no better than pixels"),  # a point more on a thousand images is none
        (30.0, 44.0, 45.0, "no better than it started"),
        (30.0, 77.2, 66.4, "worse than it started"),
        (80.0, 77.2, 66.4, "worse than it started"),
    ],
)
def test_the_newest_whole_measurement_decides(
    pixels, untrained, trained, kind, place, monkeypatch, capsys, tmp_path
):
    kept = (place / "below" / "evaluation.jsonl").read_text()
    measured(place / "below", pixels=pixels, untrained=untrained, trained=trained)
    call_checked(monkeypatch, capsys, "report", place / "below", "--out", tmp_path / "page.html")
    call_checked(monkeypatch, capsys, "export", place / "below", "--out", tmp_path / "export")
    (place / "below" / "evaluation.jsonl").write_text(kept)
    text, card = page(tmp_path / "page.html"), (tmp_path / "export" / "model_card.md").read_text()
    assert f"{kind}: kNN is right on {trained:.1f}% of 1,000 test images" in text
    assert f"**{kind}**: kNN is right on {trained:.1f}%" in card
    assert f"({trained - pixels:+.1f} points, 95% interval" in text


def test_without_labels_the_verdict_says_that_accuracy_was_not_measured(tmp_path, monkeypatch, capsys):
    for i in range(12):
        write_image(tmp_path / "photos" / f"{i}.png", width=16, height=16, seed=i)
    run = tmp_path / "run"
    out, err = call_checked(
        monkeypatch, capsys, "pretrain", tmp_path / "photos", "--out", run, "--epochs", 1, "--width", 0.25,
        "--json",
    )  # fmt: skip
    why = "accuracy not measured: "
    assert why in err
    assert "has no labels" in verdict(run)["accuracy"]
    assert json.loads(out.splitlines()[-1])["verdict"]["accuracy"].startswith(why)
    assert "Accuracy not measured: " in page(run / "report.html")
    assert "Accuracy not measured." in (run / "model_card.md").read_text()
    assert str(tmp_path) not in (run / "model_card.md").read_text()


def test_too_few_labels_at_the_close_are_not_swallowed(tmp_path, monkeypatch, capsys):
    """One labelled image of each class: none is left to be tested on."""
    for i in range(12):
        write_image(tmp_path / "photos" / f"{i}.png", width=16, height=16, seed=i)
    (tmp_path / "two.csv").write_text("path,label\n0.png,a\n1.png,b\n")
    run = tmp_path / "run"
    _, err = call_checked(
        monkeypatch, capsys, "pretrain", tmp_path / "photos", "--out", run, "--epochs", 1, "--width", 0.25,
        "--labels", tmp_path / "two.csv", "--json",
    )  # fmt: skip
    assert not (run / "evaluation.jsonl").exists()
    assert re.search("accuracy not measured: .* 0 images to test on", verdict(run)["accuracy"])
    assert verdict(run)["accuracy"] in err
    assert verdict(run)["accuracy"][1:] in page(run / "report.html")


def test_a_part_below_a_thousandth_of_the_loss_is_in_the_report(place, tmp_path, monkeypatch, capsys):
    kept = (place / "below" / "metrics.jsonl").read_text()
    record = json.loads(kept.splitlines()[-1]) | {"loss": 5.0004, "invariance": 5.0, "variance": 0.0004}
    (place / "below" / "metrics.jsonl").write_text(
        "".join(json.dumps({**record, "step": step}) + "\n" for step in (1, 2, 3))
    )
    call_checked(monkeypatch, capsys, "report", place / "below", "--out", tmp_path / "page.html")
    (place / "below" / "metrics.jsonl").write_text(kept)
    text = page(tmp_path / "page.html")
    assert "Loss and its parts" in text
    assert "variance" in text.partition("Loss and its parts")[2].partition("Effective rank")[0]
