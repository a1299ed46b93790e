"""Features in files: the encoder's own, by name, the same after any end, in bounded memory."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import frossl
from frossl.config import Train
from frossl.data import open_dataset
from frossl.errors import InputError, TrainingError
from frossl.exporting import read_encoder, write_encoder
from frossl.features.blocks import BLOCK_IMAGES
from frossl.features.store import FeatureStore
from tests.support.cli import FROSSL, call
from tests.support.images import write_image
from tests.support.runs import PATIENCE, THREE_EPOCHS, train, wait_for

MANY = 40 * BLOCK_IMAGES + 100


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """`few.npz` (60 + 24 images of three classes), `many.npy`, and `run`, trained on the first."""
    folder, random = tmp_path_factory.mktemp("embedding"), np.random.default_rng(0)
    few = {"train_images": (60, 16, 16, 3), "test_images": (24, 16, 16, 3)}
    images = {name: random.integers(0, 256, shape, dtype=np.uint8) for name, shape in few.items()}
    labels = {"train_labels": np.arange(60) % 3, "test_labels": np.arange(24) % 3}
    np.savez(folder / "few.npz", **images, **labels, class_names=["red", "green", "blue"])
    np.save(folder / "many.npy", random.integers(0, 256, (MANY, 16, 16, 3), dtype=np.uint8))
    config = replace(THREE_EPOCHS, train=Train(epochs=1, batch_size=32))
    train(folder / "run", config=config, data=str(folder / "few.npz"))
    return folder


@pytest.fixture(scope="module")
def whole(place) -> bytes:
    """Features of `many.npy`, by one process that nobody ended."""
    frossl.embed(place / "run", place / "many.npy", out=place / "whole.npy", quiet=True)
    return (place / "whole.npy").read_bytes()


def features_of(path: Path) -> tuple[list[str], list[str | None], np.ndarray]:
    """Names, labels and features, as other programs would read them; NaN for none."""
    if path.suffix == ".parquet":
        table = pq.read_table(path).to_pydict()
        width = max(len(row) for row in table["features"] if row is not None)
        rows = [row or [np.nan] * width for row in table["features"]]
        return table["name"], table["label"], np.array(rows, np.float32)
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            _, *lines = csv.reader(file)
        rows = [[float(cell) if cell else np.nan for cell in line[2:]] for line in lines]
        return [l[0] for l in lines], [l[1] or None for l in lines], np.array(rows, np.float32)  # noqa: E741
    named = [json.loads(line) for line in path.with_suffix(".names.jsonl").read_bytes().splitlines()]
    return [n["name"] for n in named], [n["label"] for n in named], np.load(path)


@torch.no_grad()
def by_hand(run: Path, images: np.ndarray) -> np.ndarray:
    """One image after the other."""
    encoder = frossl.load_encoder(run)
    return np.concatenate([encoder(torch.from_numpy(image)[None]).numpy() for image in images])


def test_every_format_holds_names_labels_and_the_encoder_s_features(place, tmp_path):
    with np.load(place / "few.npz") as few:
        images = np.concatenate([few["train_images"], few["test_images"]]).transpose(0, 3, 1, 2)
        labels = [("red", "green", "blue")[i] for i in (*few["train_labels"], *few["test_labels"])]
    expected = by_hand(place / "run", images.copy())
    names = [f"train/image {i}" for i in range(60)] + [f"test/image {i}" for i in range(24)]
    bits = set()
    for ending in ("parquet", "csv", "npy"):
        out = tmp_path / f"few.{ending}"
        done = frossl.embed(place / "run", out=out, quiet=True)  # the run's own images
        assert (done.images, done.features, done.unreadable) == (84, expected.shape[1], {})
        found_names, found_labels, features = features_of(out)
        assert (found_names, found_labels) == (names, labels)
        np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5)
        bits.add(features.tobytes())
        assert not FeatureStore.path_for(out).exists()
    assert len(bits) == 1
    assert pq.read_schema(tmp_path / "few.parquet").field("features").type.list_size == expected.shape[1]


def start(place: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    command = ["embed", place / "run", place / "many.npy", "--out", out, "--quiet", *options]
    return subprocess.Popen(
        [*FROSSL, *map(str, command)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def blocks_done(out: Path) -> int:
    file = FeatureStore.path_for(out) / "done.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def children_of(process: subprocess.Popen[str]) -> list[Path]:
    """Of all its threads."""
    listed = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [Path("/proc", child) for threads in listed for child in threads.read_text().split()]


def wait_until_gone(processes: list[Path]) -> None:
    deadline = time.monotonic() + 10
    while any(process.exists() for process in processes):
        assert time.monotonic() < deadline, "processes are left behind"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def killed(place) -> Path:
    """What a process that was killed in the middle left beside `killed.npy`."""
    process = start(place, place / "killed.npy")
    wait_for(process, lambda: blocks_done(place / "killed.npy") >= 3)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    return place / "killed.npy"


def again(place: Path, killed: Path, out: Path, **options) -> frossl.EmbedResult:
    """A start on a copy of what was left."""
    shutil.copytree(FeatureStore.path_for(killed), FeatureStore.path_for(out), dirs_exist_ok=True)
    return frossl.embed(place / "run", place / "many.npy", out=out, quiet=True, **options)


def test_killed_and_started_again_gives_the_same_file(place, killed, whole, tmp_path):
    assert not killed.exists()
    found = again(place, killed, tmp_path / "x.npy")
    assert BLOCK_IMAGES * 3 <= found.kept < MANY
    assert (tmp_path / "x.npy").read_bytes() == whole
    names = (place / "whole.names.jsonl").read_bytes()
    assert (tmp_path / "x.names.jsonl").read_bytes() == names
    assert names.count(b"\n") == MANY
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.names.jsonl", "x.npy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "whom", "code", "said"),
    [
        (signal.SIGKILL, "first", -9, ""),
        (signal.SIGINT, "first", 130, "\nfrossl: interrupted\n"),
        (signal.SIGKILL, "other", 1, "frossl: a process that computes features is gone"),
    ],
)
def test_two_processes_that_are_ended_leave_no_other_and_go_on_to_the_same_file(
    number, whom, code, said, place, whole, tmp_path
):
    out = tmp_path / "x.npy"
    process = start(place, out, "--processes", "2")
    wait_for(process, lambda: blocks_done(out) >= 3)
    others = children_of(process)
    assert len(others) == 2
    os.kill(process.pid if whom == "first" else int(others[0].name), number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert err.startswith(said)
    assert "Traceback" not in err
    wait_until_gone(others)
    found = frossl.embed(place / "run", place / "many.npy", out=out, quiet=True)
    assert BLOCK_IMAGES * 3 <= found.kept < MANY
    assert out.read_bytes() == whole


def test_two_processes_give_the_file_of_one(place, whole, tmp_path):
    found = frossl.embed(place / "run", place / "many.npy", out=tmp_path / "x.npy", processes=2, quiet=True)
    assert (found.images, found.kept) == (MANY, 0)
    assert (tmp_path / "x.npy").read_bytes() == whole


def first_done(folder: Path) -> int:
    """Where the block that was done first begins, in bytes."""
    block = json.loads((folder / "done.jsonl").read_bytes().splitlines()[0])["block"]
    return block * BLOCK_IMAGES * json.loads((folder / "about.json").read_bytes())["features"] * 4


def cut(folder: Path) -> None:
    os.truncate(folder / "features.bin", first_done(folder) + 17)


def flip(folder: Path) -> None:
    with (folder / "features.bin").open("r+b") as file:
        file.seek(first_done(folder) + 1000)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def lose(folder: Path) -> None:
    (folder / "features.bin").unlink()


def tear(folder: Path) -> None:
    file = folder / "done.jsonl"
    os.truncate(file, file.stat().st_size - 5)


def leave_half_a_file(folder: Path) -> None:
    (folder / ".writing-x.npy-abc").write_bytes(b"half")
    (folder / "x.npy").write_bytes(b"half")


@pytest.mark.parametrize(
    ("damage", "lost"), [(cut, 1), (flip, 1), (lose, 3), (tear, 1), (leave_half_a_file, 0)]
)
def test_what_is_damaged_is_computed_again(damage, lost, place, killed, whole, tmp_path):
    copy = tmp_path / "left.npy"
    shutil.copytree(FeatureStore.path_for(killed), FeatureStore.path_for(copy))
    before = blocks_done(copy)
    damage(FeatureStore.path_for(copy))
    found = again(place, copy, tmp_path / "x.npy")
    assert found.kept <= (before - lost) * BLOCK_IMAGES
    assert (tmp_path / "x.npy").read_bytes() == whole


def test_another_encoder_or_other_images_are_not_mixed_in(place, killed, whole, tmp_path):
    out = tmp_path / "x.npy"
    with pytest.raises(InputError, match=r"x\.npy\.partial was begun with another batch size; .*--overwrite"):
        again(place, killed, out, batch_size=32)
    with pytest.raises(InputError, match="with other images"):
        frossl.embed(place / "run", place / "few.npz", out=out, quiet=True)
    other = tmp_path / "run"
    shutil.copytree(place / "run", other)
    (other / "encoder.safetensors").write_bytes(changed((other / "encoder.safetensors").read_bytes()))
    with pytest.raises(InputError, match="with another encoder"):
        frossl.embed(other, place / "many.npy", out=out, quiet=True)
    (FeatureStore.path_for(out) / "about.json").write_text("{")
    with pytest.raises(InputError, match="--overwrite"):
        frossl.embed(place / "run", place / "many.npy", out=out, quiet=True)
    found = frossl.embed(place / "run", place / "many.npy", out=out, overwrite=True, quiet=True)
    assert (found.kept, out.read_bytes()) == (0, whole)


def changed(weights: bytes) -> bytes:
    """The last weight of all, by one bit."""
    return weights[:-4] + bytes([weights[-4] ^ 1]) + weights[-3:]


def test_one_file_is_written_by_one_process(place, killed, tmp_path):
    out = tmp_path / "x.npy"
    shutil.copytree(FeatureStore.path_for(killed), FeatureStore.path_for(out))
    about = json.loads((FeatureStore.path_for(out) / "about.json").read_text())
    from frossl.features.store import StoreHeader

    with (
        FeatureStore.open(out, StoreHeader(**about), overwrite=False),
        pytest.raises(InputError, match="another process is writing"),
    ):
        frossl.embed(place / "run", place / "many.npy", out=out, quiet=True)


def test_threads_do_not_change_a_bit_and_are_given_back(place, whole, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        frossl.embed(place / "run", place / "many.npy", out=tmp_path / "x.npy", quiet=True)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert (tmp_path / "x.npy").read_bytes() == whole


ODD = [
    "new\nline.png",
    'quo"te,s.png',
    "<script>.png",
    "right\u202eleft.png",
    "=1+1.png",
    "b\udcff.png",
    " .png",
]


def test_names_may_hold_anything(place, tmp_path):
    folder = tmp_path / "odd"
    for i, name in enumerate(ODD):
        write_image(folder / "a,b" / name, width=20, height=20, seed=i)
        write_image(folder / "c\nd" / name, width=20, height=20, seed=50 + i)
    for ending in ("parquet", "csv", "npy"):
        out = tmp_path / f"x.{ending}"
        frossl.embed(place / "run", folder, out=out, quiet=True)
        names, labels, features = features_of(out)
        written = [f"{top}/{name}" for top in ("a,b", "c\nd") for name in ODD]
        if ending == "parquet":  # its texts are UTF-8
            written = [name.replace("\udcff", "\\udcff") for name in written]
        assert sorted(names) == sorted(written)
        assert set(labels) == {"a,b", "c\nd"}
        assert np.isfinite(features).all()


def test_a_file_that_cannot_be_read_keeps_its_row_and_gets_nobody_else_s_features(place, tmp_path):
    folder = tmp_path / "photos"
    for i in range(6):
        write_image(folder / f"{i}.png", width=16, height=16, seed=i)
    good = (folder / "3.png").read_bytes()
    (folder / "3.png").write_bytes(good[: len(good) // 2])
    pixels = {i: np.asarray(Image.open(folder / f"{i}.png")) for i in (0, 1, 2, 4, 5)}
    expected = by_hand(place / "run", np.stack(list(pixels.values())).transpose(0, 3, 1, 2).copy())
    for ending in ("parquet", "csv", "npy"):
        out = tmp_path / f"{ending}.{ending}"
        found = frossl.embed(place / "run", folder, out=out, outliers=9, duplicates=0.9, quiet=True)
        assert list(found.unreadable) == ["3.png"]
        names, labels, features = features_of(out)
        assert names == [f"{i}.png" for i in range(6)]
        assert labels == [None] * 6
        assert np.isnan(features[3]).all()
        np.testing.assert_allclose(features[list(pixels)], expected, rtol=1e-4, atol=1e-5)
        for beside in ("duplicates", "outliers"):
            assert "3.png" not in found.beside[beside].read_text()
        assert found.beside["outliers"].read_text().count("\n") == 6
    assert pq.read_table(tmp_path / "parquet.parquet")["features"].null_count == 1


def test_names_of_parts_are_paths_below_the_data(place, tmp_path):
    folder = tmp_path / "photos"
    for i in range(8):
        write_image(
            folder / ("train", "val")[i % 2] / "ab"[i // 2 % 2] / f"{i}.png", width=16, height=16, seed=i
        )
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for path in paths:
            archive.write(folder / path, f"photos/{path}")
    for data, begin in ((folder, ""), (tmp_path / "photos.zip", "photos/")):
        frossl.embed(place / "run", data, out=tmp_path / "x.csv", overwrite=True, quiet=True)
        names, labels, _ = features_of(tmp_path / "x.csv")
        assert names == [begin + path for path in paths]
        assert labels == [path.split("/")[1] for path in paths]
    frossl.embed(place / "run", folder / "train", out=tmp_path / "y.csv", quiet=True)
    assert features_of(tmp_path / "y.csv")[0] == [p.removeprefix("train/") for p in paths if "train" in p]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "x.pickle"], "give one of .parquet, .npy, .csv"),
        (["--out", "x"], "give one of .parquet, .npy, .csv"),
        (["--out", "nowhere/x.csv"], "there is no folder nowhere"),
        (["--out", "there.csv"], "there.csv is already there"),
        (["--out", "there.npy"], "there.names.jsonl is already there"),
        (["--out", "folder.csv"], "folder.csv is a folder"),
        (["--out", "busy.csv"], "was not written by frossl"),
        (["--out", "x.csv", "--batch-size", "0"], "batch_size = 0"),
        (["--out", "x.csv", "--processes", "0"], "processes = 0"),
        (["--out", "x.csv", "--duplicates", "1.5"], "duplicates = 1.5"),
        (["--out", "x.csv", "--outliers", "0"], "outliers = 0"),
        (["--out", "x.csv", "--root", "."], "give its name, too"),
        (["gray.npy", "--out", "x.csv"], "the images have 1 channels, and the encoder takes 3"),
        (["missing/photos", "--out", "x.csv"], "there is no folder or file missing/photos"),
    ],
)
def test_what_cannot_be_embedded_is_refused_in_one_line(options, words, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("gray.npy", np.zeros((4, 16, 16), np.uint8))
    for path in ("there.csv", "there.names.jsonl", "busy.csv.partial/mine.txt"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("precious")
    Path("folder.csv").mkdir()
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call(monkeypatch, capsys, "embed", place / "run", *options)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert words in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_library_is_named_before_any_work(place, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'frossl\[parquet\]'"):
        frossl.embed(place / "run", out=tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr("frossl.features.neighbors.MAX_EXACT_ROWS", 50)
    with pytest.raises(InputError, match=r"pip install 'frossl\[search\]'"):
        frossl.embed(place / "run", out=tmp_path / "x.npy", outliers=3)
    assert not list(tmp_path.iterdir())


def test_copies_are_paired_and_the_odd_one_is_found(place, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "photos"
    for i in range(20):
        write_image(folder / f"{i}.png", width=32, height=32, seed=i)
    shutil.copy(folder / "7.png", folder / "again.png")
    shutil.copy(folder / "7.png", folder / "and again.png")
    out = tmp_path / "x.parquet"
    options = ["--out", out, "--duplicates", "1", "--outliers", "5", "--json"]
    code, said, err = call(monkeypatch, capsys, "embed", place / "run", folder, *options)
    found = json.loads(said)
    assert (code, found["pairs"], found["groups"]) == (0, 3, 1), err
    assert "near-duplicates (pairs 3, groups 1)" in err
    assert (tmp_path / "x.duplicates.csv").read_text().splitlines() == [
        "name,other,cosine,group",
        "7.png,again.png,1.000000,1",
        "7.png,and again.png,1.000000,1",
        "again.png,and again.png,1.000000,1",
    ]
    lines = [line.rsplit(",", 1) for line in (tmp_path / "x.outliers.csv").read_text().splitlines()[1:]]
    assert len(lines) == 5
    assert not {"7.png", "again.png"} & {name for name, _ in lines}
    assert [float(far) for _, far in lines] == sorted((float(far) for _, far in lines), reverse=True)


@pytest.mark.slow
def test_an_encoder_that_is_broken_is_named_by_other_processes_too(place, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(place / "run", run)
    encoder, design = read_encoder(run)
    for parameter in encoder.parameters():
        parameter.data.fill_(float("nan"))
    write_encoder(run / "encoder.safetensors", encoder, design)
    with pytest.raises(TrainingError, match="are not finite"):
        frossl.embed(run, place / "many.npy", out=tmp_path / "x.npy", processes=2, quiet=True)


MEASURED = """
import sys, frossl
frossl.embed(sys.argv[1], sys.argv[2], out=sys.argv[3], quiet=True)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "txt"])
def test_a_hundred_thousand_images_take_the_memory_of_a_few(kind, place, tmp_path):
    """Of arrays and of files: 95,000 more of 768 bytes may add names, and no pixels or features."""

    def peak(count: int) -> float:
        """MB."""
        data = tmp_path / f"{count}.{kind}"
        if kind == "npy":
            images = np.lib.format.open_memmap(data, "w+", np.uint8, (count, 16, 16, 3))
            images[:] = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), dtype=np.uint8)
            images.flush()
        else:
            data.write_text("\n".join(f"{i % 100}.png" for i in range(count)))
        out = tmp_path / f"{count}.parquet"
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, str(place / "run"), str(data), str(out)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert pq.read_metadata(out).num_rows == count
        return int(done.stdout) / 1024

    for i in range(100 if kind == "txt" else 0):
        write_image(tmp_path / f"{i}.png", width=16, height=16, seed=i)
    few, many = peak(5_000), peak(100_000)
    assert many - few < 20


def test_arrays_stay_in_their_file_and_decoded_images_are_forgotten(place, photos, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    for name, array in {
        "last": images,
        "first": images.transpose(0, 3, 1, 2),
        "gray": images[..., 0],
    }.items():
        np.save(tmp_path / f"{name}.npy", array)
        kept, mapped = (
            open_dataset(tmp_path / f"{name}.npy", keep=keep).train.source for keep in (True, False)
        )
        ids = torch.tensor([4, 0, 2])
        assert torch.equal(kept.read(ids).images, mapped.read(ids).images)
        assert mapped.read(ids).images.is_contiguous()
        assert (len(kept), kept.size, kept.channels) == (len(mapped), mapped.size, mapped.channels)
        assert kept.content(3) == mapped.content(3)
        assert torch.equal(mapped.subset(ids).read(torch.tensor([1])).images[0], kept.read(ids).images[1])
    before = open_dataset(tmp_path / "last.npy", keep=False).train.source.digest
    np.save(tmp_path / "last.npy", 255 - images)
    assert open_dataset(tmp_path / "last.npy", keep=False).train.source.digest != before
    kept, forgotten = (open_dataset(photos, size=8, keep=keep).train.source for keep in (True, False))
    all_of_them = torch.arange(12)
    first = kept.read(all_of_them).images
    assert torch.equal(forgotten.read(all_of_them).images, first)
    for path in photos.rglob("*.jpg"):
        write_image(path, width=40, height=40, seed=99)
    assert torch.equal(kept.read(all_of_them).images, first)
    assert not torch.equal(forgotten.read(all_of_them).images, first)
