"""Data that is odd, large or deep: read as it is meant, or refused in one line; never a traceback."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import frossl
from frossl.data import open_dataset
from frossl.errors import InputError
from tests.support.images import write_image
from tests.support.runs import USUAL

TINY: dict[str, Any] = {
    "backbone": "resnet18",
    "width": 0.125,
    "epochs": 1,
    "batch_size": 8,
    "quiet": True,
    "settings": {"network.projector_hidden": 16, "network.projector_out": 8},
}
MANY = 2**24 + 4
"""Images: 2²⁴ + 3 is no number of float32, and is rounded up to one that is no id."""


def picture(seed: int = 0) -> bytes:
    with io.BytesIO() as file:
        pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue()


# more images than float32 can count


def test_views_of_more_images_than_float32_can_count(tmp_path):
    """Of four by four pixels, in a file of holes."""
    np.lib.format.open_memmap(tmp_path / "many.npy", "w+", np.uint8, (MANY, 4, 4)).flush()
    sheet = frossl.views(tmp_path / "many.npy", out=tmp_path / "views.png", images=2)
    assert sheet.is_file()


# labels


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([10**7, 2 * 10**7], ("10000000", "20000000")),
        ([2**62, 5], ("5", str(2**62))),
        ([-7, 3], ("-7", "3")),
        ([0.0, 1e15], ("0", str(10**15))),
    ],
)
def test_classes_are_the_distinct_labels_however_large(tmp_path, values, names):
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.array(values * 4))
    assert frossl.check(tmp_path / "a.npz", quiet=True).classes == names


@pytest.mark.parametrize("kind", [str, int])
def test_the_test_part_counts_classes_as_the_training_part_does(tmp_path, kind):
    """Each part lacks a class of the other."""
    images = np.zeros((6, 8, 8, 3), np.uint8)
    train, test = ([kind(label) for label in labels] for labels in ([10**7, 20, 30] * 2, [20, 30, 40] * 2))
    arrays = {"train_labels": np.array(train), "test_labels": np.array(test)}
    np.savez(tmp_path / "a.npz", train_images=images, test_images=images, **arrays)
    data = open_dataset(tmp_path / "a.npz")
    assert data.train.labels is not None
    assert data.test is not None
    assert data.test.labels is not None
    names = data.train.labels.names
    assert len(names) == 4
    assert [names[i] for i in data.train.labels.values.tolist()] == [str(label) for label in train]
    assert [names[i] for i in data.test.labels.values.tolist()] == [str(label) for label in test]


def test_labels_that_no_class_name_is_for_are_refused(tmp_path):
    images = np.zeros((4, 8, 8, 3), np.uint8)
    for labels in ([0, 1, 2, 3], [0, 1, -2, 1], [np.inf, 0, 1, 1]):
        np.savez(tmp_path / "a.npz", images=images, labels=np.array(labels), class_names=np.array(["a", "b"]))
        with pytest.raises(InputError):
            frossl.check(tmp_path / "a.npz", quiet=True)


# arrays of another shape


@pytest.mark.parametrize("shape", [(32, 40, 3), (32, 40, 4)])
def test_one_image_is_not_read_as_many_gray_ones(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    np.savez(tmp_path / "a.npz", images=np.zeros(shape, np.uint8))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(InputError, match="one image in color"):
            frossl.check(tmp_path / name, quiet=True)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((4, 9, 8, 3), 8),
        ((4, 3, 9, 8), 8),
        ((4, 9, 8), 8),
        ((4, 9, 8, 1), 8),
        ((4, 2, 60, 3), 2),
        ((3, 9, 8), 8),
    ],
)
def test_arrays_of_images_are_read_in_their_own_order(tmp_path, shape, size):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    found = frossl.check(tmp_path / "a.npy", quiet=True)
    assert (found.images, found.size) == (shape[0], size)


# crops and tiny images


@pytest.mark.parametrize("ratio", [(0.01, 0.02), (50.0, 100.0)])
@pytest.mark.parametrize("kernel", ["torch", "numba"])
@pytest.mark.parametrize("shape", [(16, 16), (1, 1), (1, 200), (200, 1), (100, 100)])
def test_a_crop_has_at_least_one_pixel(ratio, kernel, shape):
    """Ratios that no crop of these images has."""
    spec = frossl.ViewSpec(size=8, count=2, ratio=ratio, scale=(0.5, 1.0), **USUAL)
    augment = frossl.Augment([spec], mean=(0.5,) * 3, std=(0.25,) * 3, kernel=kernel)
    images = torch.randint(0, 256, (4, 3, *shape), dtype=torch.uint8)
    batch, clock = frossl.Batch(images, torch.arange(4)), frossl.Clock(step=0, total=1, epoch=0, seed=0)
    (views,) = augment(batch, clock)
    assert views.isfinite().all()
    assert views.std() > 0


@pytest.mark.parametrize(("width", "height"), [(1, 1), (300, 1)])
def test_images_of_one_row_or_pixel_are_learned_from(tmp_path, width, height):
    for i in range(8):
        write_image(tmp_path / "photos" / f"{i}.png", width=width, height=height, seed=i)
    run = frossl.pretrain(tmp_path / "photos", out=tmp_path / "run", **TINY)
    assert run.status["state"] == "finished"


# archives


def test_members_thousands_of_folders_deep_are_read_with_their_classes(tmp_path):
    deep = "/".join(["x"] * 5000)
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        for i in range(6):
            archive.writestr(f"{deep}/{'ab'[i % 2]}/{i}.png", picture(i))
    with tarfile.open(tmp_path / "deep.tar", "w") as tar:
        for i in range(6):
            info = tarfile.TarInfo(f"{deep}/{'ab'[i % 2]}/{i}.png")
            info.size = len(picture(i))
            tar.addfile(info, io.BytesIO(picture(i)))
    for name in ("deep.zip", "deep.tar"):
        found = frossl.check(tmp_path / name, quiet=True)
        assert (found.images, found.classes, found.bad_files) == (6, ("a", "b"), {})


def test_a_tar_of_headers_about_headers_is_refused_in_one_line(tmp_path):
    """Each says that the name of the next is long; Python's reader follows them by recursion."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1
    one = info.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")
    (tmp_path / "a.tar").write_bytes(one * 5000)
    with pytest.raises(InputError) as refused:
        frossl.check(tmp_path / "a.tar", quiet=True)
    assert "\n" not in str(refused.value)


def test_an_archive_in_an_archive_is_no_image(tmp_path):
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as inner:
        inner.writestr("a.png", picture())
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as outer:
        for i in range(3):
            outer.writestr(f"{i}.png", picture(i))
        outer.write(tmp_path / "inner.zip", "inner.zip")
        outer.write(tmp_path / "inner.zip", "inner.png")
    found = frossl.check(tmp_path / "outer.zip", quiet=True)
    assert (found.images, list(found.bad_files)) == (4, ["inner.png"])


# another system


POSIX_ONLY = """
import os, sys
for name in ("O_NONBLOCK", "O_CLOEXEC", "pread", "pwrite", "preadv", "sched_getaffinity", "fchmod",
             "getloadavg", "sched_setaffinity", "posix_fadvise", "statvfs"):
    if hasattr(os, name):
        delattr(os, name)
sys.modules["fcntl"] = sys.modules["resource"] = None
import frossl
data, out = sys.argv[1:]
for name in ("photos", "photos.zip", "photos.tar"):
    found = frossl.check(os.path.join(data, name), quiet=True)
    assert (found.images, found.bad_files, found.classes) == (8, {}, ("a", "b")), found
packed = frossl.pack(os.path.join(data, "photos"), out=os.path.join(out, "packed"), quiet=True)
run = frossl.pretrain(packed, out=os.path.join(out, "run"), backbone="resnet18", width=0.125, epochs=1,
    batch_size=8, quiet=True, settings={"network.projector_hidden": 16, "network.projector_out": 8})
assert run.status["state"] == "finished"
"""


def test_all_kinds_of_data_are_read_where_posix_names_are_missing(tmp_path):
    """As on Windows: a process in which these names are gone before frossl is imported."""
    for i in range(8):
        write_image(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png", width=8, height=8, seed=i)
    with (
        zipfile.ZipFile(tmp_path / "photos.zip", "w", zipfile.ZIP_DEFLATED) as packed,
        tarfile.open(tmp_path / "photos.tar", "w") as tar,
    ):
        for file in (tmp_path / "photos").rglob("*.png"):
            packed.write(file, file.relative_to(tmp_path / "photos"))
            tar.add(file, file.relative_to(tmp_path / "photos"))
    command = [sys.executable, "-c", POSIX_ONLY, str(tmp_path), str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    environment = {**os.environ, "FROSSL_CACHE": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


# markup


def test_markup_in_names_is_shown_as_it_is(tmp_path, capsys, monkeypatch):
    """Of runs and of classes; by `compare`, `knn` and `list`, which print tables."""
    monkeypatch.setattr(sys, "argv", ["frossl"])
    from frossl.cli import app

    for i in range(12):
        name = ("[red]a[/red]", "[/]b")[i % 2]
        folder = tmp_path / "photos" / name.replace("/", "∕")
        write_image(folder / f"{i}.png", width=8, height=8, seed=i)
    runs = [tmp_path / name for name in ("[bold]x[", "[green]y")]
    for seed, place in enumerate(runs):
        frossl.pretrain(tmp_path / "photos", out=place, seed=seed, **{**TINY, "lr": 1e-3 * (seed + 1)})
        frossl.report(place)
    capsys.readouterr()
    app(["compare", *map(str, runs)], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "[bold]x[" in shown
    assert "[green]y" in shown


def test_a_member_of_a_zip_without_a_name_is_left_out(tmp_path):
    for i in range(4):
        write_image(tmp_path / f"{i}.png", width=16, height=16, seed=i)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for i in range(4):
            archive.write(tmp_path / f"{i}.png", f"{i}.png")
        archive.writestr("x.png", b"nothing")
    content = (tmp_path / "photos.zip").read_bytes()
    assert content.count(b"x.png") == 2  # in its own header, and in the directory at the end
    directory = content.rindex(b"PK\x01\x02")
    entry = bytearray(content[directory:])
    entry[28:30] = b"\0\0"  # the length of its name
    entry[32:34] = b"\5\0"  # what was the name is a comment now
    (tmp_path / "photos.zip").write_bytes(content[:directory] + bytes(entry))
    assert frossl.check(tmp_path / "photos.zip").images == 4


def test_an_index_begun_by_a_killed_process_does_not_stay_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    code = (
        "import os, signal, frossl.runs.folder as folder, frossl.data;"
        "folder.os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL);"
        f"frossl.data.open_dataset({str(tmp_path / 'photos')!r})"
    )
    for name in "ab":
        write_image(tmp_path / "photos" / f"{name}.png", width=40, height=40)
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / "cache").rglob(".writing-*"))
    open_dataset(str(tmp_path / "photos"))
    assert list((tmp_path / "cache").rglob("*.index"))
    assert not list((tmp_path / "cache").rglob(".writing-*"))
