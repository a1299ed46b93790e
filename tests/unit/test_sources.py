"""Lists, archives, arrays, the index, and every kind of file."""

from __future__ import annotations

import io
import os
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms, ImageOps

from frossl.data import decode as decoding
from frossl.data import open_dataset
from frossl.data.decode import BadFile, decode
from frossl.data.index import index_folder
from frossl.data.mmap import Names
from frossl.errors import InputError, TrainingError
from tests.support.images import KINDS, ORIENTATION, as_large, encoded, picture, sample, write_image


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decoder", ["simplejpeg", "pillow"])
def test_every_kind_of_file_has_the_pixels_that_pillow_gives(kind, decoder, monkeypatch):
    """To 2 of 255, at the size of the file (nothing is scaled down), the central square."""
    if decoder == "pillow":
        monkeypatch.setattr(decoding, "simplejpeg", None)
    data = sample(kind)
    with Image.open(io.BytesIO(data)) as image:
        plain = ImageOps.exif_transpose(image)
        if plain.mode.startswith("I"):
            plain = Image.fromarray((np.asarray(plain) / 257).round().astype(np.uint8))
        plain = plain.convert("RGB")
    expected = np.asarray(plain).transpose(2, 0, 1)
    difference = np.abs(decode(data, min(plain.size)).astype(int) - expected)
    assert difference.max() <= 2


def test_photographs_decoded_at_a_smaller_scale_look_the_same(monkeypatch):
    data = encoded(picture("RGB", width=1400, height=1000), "JPEG")
    fast = decode(data, 64)
    monkeypatch.setattr(decoding, "simplejpeg", None)
    slow = decode(data, 64)
    with Image.open(io.BytesIO(data)) as image:
        whole = image.convert("RGB").resize((90, 64), Image.Resampling.BICUBIC)
    assert np.abs(fast.astype(int) - slow).max() <= 2
    assert np.abs(fast.astype(int) - np.asarray(whole).transpose(2, 0, 1)).max() <= 6


def test_a_profile_of_colors_does_no_harm():
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    with_one = encoded(picture("RGB"), "JPEG", icc_profile=profile)
    assert np.array_equal(decode(with_one, 50), decode(encoded(picture("RGB"), "JPEG"), 50))


# lists, archives, arrays


@pytest.fixture
def classes(tmp_path) -> Path:
    for i in range(12):
        write_image(tmp_path / "images" / "ab"[i % 2] / f"{i:02d}.png", width=20, height=20, seed=i)
    return tmp_path / "images"


def pixels_of(data) -> torch.Tensor:
    return data.train.source.read(torch.arange(len(data.train.source))).images


def test_a_list_of_paths(classes, tmp_path):
    names = sorted(str(p.relative_to(tmp_path)) for p in classes.rglob("*.png"))
    (tmp_path / "list.txt").write_text("\n".join([*names, "", ""]))
    data = open_dataset(tmp_path / "list.txt")
    assert torch.equal(pixels_of(data), pixels_of(open_dataset(classes)))
    assert data.train.labels is None


def test_a_table_of_paths_and_labels(classes, tmp_path):
    names = sorted(p.relative_to(tmp_path) for p in classes.rglob("*.png"))
    rows = [f"{name},{name.parts[1]}" for name in names]
    rows[3] = f"{names[3]},"
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows]))
    labels = open_dataset(tmp_path / "list.csv").train.labels
    assert labels.names == ("a", "b")
    assert labels.values.tolist() == [0, 0, 0, -1, 0, 0, 1, 1, 1, 1, 1, 1]
    excel = "\ufeff" + "\r\n".join(["path,label", *rows])
    (tmp_path / "excel.csv").write_bytes(excel.encode())
    assert torch.equal(open_dataset(tmp_path / "excel.csv").train.labels.values, labels.values)
    (tmp_path / "bad.csv").write_text("file\nx.png\n")
    with pytest.raises(InputError, match="no column `path`"):
        open_dataset(tmp_path / "bad.csv")


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_is_read_in_place(packing, classes, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", packing) as archive:
        for path in sorted(classes.rglob("*.png"), reverse=True):
            archive.write(path, path.relative_to(classes))
        archive.writestr("__MACOSX/a/._00.png", b"junk")
    data = open_dataset(tmp_path / "x.zip")
    assert torch.equal(pixels_of(data), pixels_of(open_dataset(classes)))
    assert data.train.labels.values.tolist() == [0] * 6 + [1] * 6


def test_an_archive_with_parts_is_read_as_those(classes, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for part in ("train", "val"):
            archive.add(classes, part)
    data = open_dataset(tmp_path / "x.tar")
    assert len(data.train.source) == len(data.test.source) == 12
    assert data.test.labels.names == data.train.labels.names == ("a", "b")
    assert torch.equal(pixels_of(data), pixels_of(open_dataset(classes)))


def test_a_packed_tar_is_refused_with_what_to_do(classes, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w:gz") as archive:
        archive.add(classes, "x")
    with pytest.raises(InputError, match="an uncompressed tar, or unpack it"):
        open_dataset(tmp_path / "x.tar")


def test_shards_of_webdataset(classes, tmp_path):
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(2):
        with tarfile.open(shards / f"{number:04d}.tar", "w") as archive:
            for path in sorted(classes.rglob("*.png"))[number::2]:
                archive.add(path, path.name)
                label = tarfile.TarInfo(path.stem + ".cls")
                label.size = 1
                archive.addfile(label, io.BytesIO(path.parent.name.encode()))
    data = open_dataset(shards)
    assert len(data.train.source) == 12
    assert data.train.source.name(0).startswith("0000.tar/")
    assert sorted(data.train.labels.values.tolist()) == [0] * 6 + [1] * 6


def tar_of(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_shards_have_the_labels_of_the_folders_in_them_or_none(classes, tmp_path):
    raw = (classes / "a" / "00.png").read_bytes()
    for kind, name in (("foldered", "{c}/{i}.png"), ("flat", "{i}.png")):
        (tmp_path / kind).mkdir()
        for number in range(3):
            members = {name.format(c="ab"[i % 2], i=i): raw for i in range(4)}
            tar_of(tmp_path / kind / f"{number}.tar", members)
    assert open_dataset(tmp_path / "foldered").train.labels.names == ("a", "b")
    assert open_dataset(tmp_path / "flat").train.labels is None


def test_a_stray_archive_beside_images_is_left_alone(classes, tmp_path):
    tar_of(classes / "backup.tar", {"x.png": b"x"})
    assert len(open_dataset(classes).train.source) == 12
    (tmp_path / "shards" / ".hidden").mkdir(parents=True)
    raw = (classes / "a" / "00.png").read_bytes()
    tar_of(tmp_path / "shards" / "0.tar", {f"{i}.png": raw for i in range(3)})
    assert len(open_dataset(tmp_path / "shards").train.source) == 3


@pytest.mark.parametrize("damage", ["header", "end"])
def test_a_damaged_tar_is_refused_not_read_in_part(damage, classes, tmp_path):
    raw = (classes / "a" / "00.png").read_bytes()
    path = tar_of(tmp_path / "x.tar", {f"{i}.png": raw for i in range(6)})
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        place = archive.getmembers()[4].offset
    content[place + 10] ^= 255
    path.write_bytes(content if damage == "header" else content[:place])
    with pytest.raises(InputError, match="damaged or cut off after 4 files"):
        open_dataset(path)


@pytest.mark.parametrize("wrap", ["photos/", "photos/./", "./photos/"])
def test_an_archive_of_one_folder_is_read_as_what_is_in_it(wrap, classes, tmp_path):
    members = {
        f"{wrap}{part}/{path.parent.name}/{path.name}": path.read_bytes()
        for part in ("train", "val")
        for path in sorted(classes.rglob("*.png"))
    }
    data = open_dataset(tar_of(tmp_path / "parts.tar", members))
    assert (len(data.train.source), len(data.test.source)) == (12, 12)
    assert data.test.labels.values.tolist() == [0] * 6 + [1] * 6
    plain = {name.replace("train/", ""): raw for name, raw in members.items() if "train/" in name}
    assert open_dataset(tar_of(tmp_path / "plain.tar", plain)).train.labels.names == ("a", "b")


def test_second_names_in_a_tar_and_a_zip_at_its_end(classes, tmp_path):
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    os.link(classes / "a" / "00.png", classes / "a" / "again.png")
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(classes, ".")
        archive.add(tmp_path / "inner.zip", "z.zip")
    assert len(open_dataset(tmp_path / "x.tar").train.source) == 13
    assert torch.equal(pixels_of(open_dataset(tmp_path / "x.tar")), pixels_of(open_dataset(classes)))


def test_members_that_cannot_be_read_in_place_are_bad_files(classes, tmp_path):
    paths = sorted(classes.rglob("*.png"))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number, path in enumerate(paths):
            archive.write(path, f"{number}.png", zipfile.ZIP_LZMA if number == 3 else zipfile.ZIP_STORED)
    source = open_dataset(tmp_path / "x.zip").train.source
    source.read(torch.arange(12))
    assert list(source.bad_files()) == ["3.png"]
    (tmp_path / "x.zip").write_bytes((tmp_path / "x.zip").read_bytes()[:-30])
    with pytest.raises(InputError, match="cannot be read as a zip"):
        open_dataset(tmp_path / "x.zip")


def test_a_member_that_claims_to_be_empty_is_not_unpacked(classes, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*.png")):
            archive.write(path, path.name + ".png")
        archive.writestr("bomb.png", b"")
    source = open_dataset(tmp_path / "x.zip").train.source
    source.read(torch.arange(13))
    assert source.bad_files() == {"bomb.png": "empty"}


def test_a_folder_that_was_reached_by_a_link_stays_when_the_link_goes(tmp_path):
    write_image(tmp_path / "data" / "q" / "x" / "1.png", width=9, height=9)
    (tmp_path / "data" / "m").mkdir()
    (tmp_path / "data" / "m" / "link").symlink_to(tmp_path / "data" / "q" / "x")
    age(tmp_path / "data")
    assert list(index_folder(tmp_path / "data", cache=tmp_path / "cache").names) == ["m/link/1.png"]
    (tmp_path / "data" / "m" / "link").unlink()
    assert list(index_folder(tmp_path / "data", cache=tmp_path / "cache").names) == ["q/x/1.png"]


def test_a_jpeg_is_turned_wherever_it_says_so():
    plain = encoded(picture("RGB"), "JPEG", quality=95)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    turned = encoded(picture("RGB"), "JPEG", quality=95, exif=exif)
    padding = b"\xff\xe2" + (8002).to_bytes(2, "big") + b"\0" * 8000
    late = turned[:2] + padding + turned[2:]
    expected = decode(turned, 40)
    assert np.abs(decode(late, 40).astype(int) - expected).max() <= 2
    assert decode(plain, 40).shape == (3, *expected.shape[:0:-1])


def test_lists_that_are_no_lists_are_refused(tmp_path):
    (tmp_path / "wide.txt").write_bytes("a.png\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        open_dataset(tmp_path / "wide.txt")
    (tmp_path / "quotes.csv").write_text('path\n"' + "x" * 200_000 + "\n")
    with pytest.raises(InputError, match="check its quotes"):
        open_dataset(tmp_path / "quotes.csv")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(InputError, match="no regular file"):
        open_dataset(tmp_path / "pipe.txt")


def test_a_train_folder_alone_has_its_labels_and_a_flat_test_part_none(classes, tmp_path):
    (tmp_path / "set").mkdir()
    classes.rename(tmp_path / "set" / "train")
    assert open_dataset(tmp_path / "set").train.labels.names == ("a", "b")
    write_image(tmp_path / "set" / "val" / "1.png", width=20, height=20)
    data = open_dataset(tmp_path / "set")
    assert len(data.test.source) == 1
    assert data.test.labels is None


def test_a_test_part_of_one_class_keeps_its_label(classes, tmp_path):
    (tmp_path / "set").mkdir()
    classes.rename(tmp_path / "set" / "train")
    write_image(tmp_path / "set" / "val" / "b" / "1.png", width=20, height=20)
    assert open_dataset(tmp_path / "set").test.labels.values.tolist() == [1]


def test_channels_are_the_shorter_axis(tmp_path):
    np.save(tmp_path / "many.npy", np.zeros((5, 16, 16, 13), np.uint8))
    assert open_dataset(tmp_path / "many.npy").train.source.channels == 13
    np.save(tmp_path / "first.npy", np.zeros((5, 13, 16, 16), np.uint8))
    assert open_dataset(tmp_path / "first.npy").train.source.channels == 13


def test_archives_that_have_not_changed_are_not_listed_again(classes, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(classes, ".")
    first = open_dataset(tmp_path / "x.tar").train
    listed, tar = [], tarfile.open
    monkeypatch.setattr(tarfile, "open", lambda *given: (listed.append(given), tar(*given))[1])
    again = open_dataset(tmp_path / "x.tar").train
    assert listed == []
    assert again.source.digest == first.source.digest
    assert torch.equal(pixels_of(open_dataset(tmp_path / "x.tar")), pixels_of(open_dataset(classes)))
    assert again.labels.values.tolist() == first.labels.values.tolist()
    with tarfile.open(tmp_path / "x.tar", "a") as archive:
        archive.add(classes / "a" / "00.png", "a/more.png")
    listed.clear()
    assert len(open_dataset(tmp_path / "x.tar").train.source) == 13
    assert len(listed) == 1


def test_a_damaged_member_is_a_bad_file(classes, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for path in sorted(classes.rglob("*.png")):
            archive.write(path, path.relative_to(classes))
        place = archive.infolist()[2].header_offset + 100
    raw = bytearray((tmp_path / "x.zip").read_bytes())
    raw[place] ^= 255
    (tmp_path / "x.zip").write_bytes(raw)
    source = open_dataset(tmp_path / "x.zip").train.source
    source.read(torch.arange(12))
    assert source.bad_files() == {"a/04.png": "another checksum than the archive says"}


def test_arrays(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "gray.npy", images[..., 0])
    np.savez(
        tmp_path / "x.npz", train_images=images, train_labels=np.arange(9) % 3, test_images=images[:2],
        test_labels=[0, 1], class_names=["x", "y", "z"],
    )  # fmt: skip
    expected = torch.from_numpy(images).permute(0, 3, 1, 2)
    assert torch.equal(pixels_of(open_dataset(tmp_path / "x.npy")), expected)
    assert pixels_of(open_dataset(tmp_path / "gray.npy")).shape == (9, 1, 8, 8)
    data = open_dataset(tmp_path / "x.npz")
    assert torch.equal(pixels_of(data), expected)
    assert data.train.labels.names == ("x", "y", "z")
    assert data.test.labels.values.tolist() == [0, 1]
    np.savez(tmp_path / "named.npz", images=images, labels=np.array(["y", "x", "y"] * 3))
    assert open_dataset(tmp_path / "named.npz").train.labels.values.tolist() == [1, 0, 1] * 3
    for name, words, content in (
        ("short", "9 images and 5 labels", {"labels": np.arange(5)}),
        ("few", "labels from 0 to 8 and 1 class_names", {"labels": np.arange(9), "class_names": ["x"]}),
        ("odd", "labels of bool", {"labels": np.ones(9, bool)}),
        ("none", "give at least two images", {"images": images[:0]}),
    ):
        np.savez(tmp_path / f"{name}.npz", **{"images": images, **content})
        with pytest.raises(InputError, match=words):
            open_dataset(tmp_path / f"{name}.npz")
    np.save(tmp_path / "float.npy", images / 255)
    with pytest.raises(InputError, match="expected uint8"):
        open_dataset(tmp_path / "float.npy")
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError, match="no array of images"):
        open_dataset(tmp_path / "objects.npy")


# the index


def age(*folders: Path) -> None:
    """Long enough ago to be sure that nothing has changed since."""
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                os.utime(path, (time.time() - 100,) * 2)


def test_folders_that_have_not_changed_are_not_scanned_again(classes, tmp_path, monkeypatch):
    age(classes)
    first = index_folder(classes, cache=tmp_path / "cache")
    scanned, scandir = [], os.scandir

    def watched(path: str | bytes) -> object:
        if Path(os.fsdecode(path)).is_relative_to(classes):  # the cache is scanned for what a kill left there
            scanned.append(Path(os.fsdecode(path)).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", watched)
    again = index_folder(classes, cache=tmp_path / "cache")
    assert scanned == []
    assert (list(again.names), again.digest) == (list(first.names), first.digest)
    (classes / "a" / "new.jpg").write_bytes(b"x")
    changed = index_folder(classes, cache=tmp_path / "cache")
    assert scanned == ["a"]
    assert list(changed.names) == sorted([*first.names, "a/new.jpg"])
    assert changed.digest != first.digest
    (classes / "c" / "d").mkdir(parents=True)
    (classes / "c" / "d" / "x.jpg").write_bytes(b"x")
    (classes / "b" / "01.png").unlink()
    names = list(index_folder(classes, cache=tmp_path / "cache").names)
    assert "c/d/x.jpg" in names
    assert "b/01.png" not in names
    assert names == list(index_folder(classes).names)


def test_a_folder_that_has_just_changed_is_looked_at_again(classes, tmp_path):
    index_folder(classes, cache=tmp_path / "cache")
    status = (classes / "a").stat()
    (classes / "a" / "new.jpg").write_bytes(b"x")
    os.utime(classes / "a", ns=(status.st_atime_ns, status.st_mtime_ns))  # as on a coarse clock
    assert "a/new.jpg" in list(index_folder(classes, cache=tmp_path / "cache").names)


def test_a_damaged_cache_is_made_again(classes, tmp_path):
    age(classes)
    first = index_folder(classes, cache=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:500])
    assert list(index_folder(classes, cache=tmp_path / "cache").names) == list(first.names)


def test_links_to_folders_are_followed_and_circles_end(classes, tmp_path):
    (classes / "a" / "round").symlink_to(classes, target_is_directory=True)
    write_image(tmp_path / "elsewhere" / "x.png", width=9, height=9)
    (classes / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    names = list(index_folder(classes).names)
    assert len(names) == 13
    assert "link/x.png" in names


def test_the_data_are_left_as_they_were(classes, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    before = sorted(classes.rglob("*"))
    open_dataset(classes)
    assert sorted(classes.rglob("*")) == before
    assert any((tmp_path / "cache" / "index").iterdir())


def test_names_are_a_sequence():
    names = Names.of([b"a", b"", b"b\xff", "ü".encode()])
    assert list(names) == ["a", "", os.fsdecode(b"b\xff"), "ü"]
    assert names[-1] == "ü"
    assert names[1:3] == ["", os.fsdecode(b"b\xff")]
    with pytest.raises(IndexError):
        names[4]


# too many bad files


def test_an_excess_of_bad_files_stops_with_a_name(tmp_path):
    for i in range(30):
        write_image(tmp_path / f"{i:02d}.png", width=9, height=9, seed=i)
    for i in range(11):
        (tmp_path / f"{i:02d}.png").write_bytes(b"no image")
    source = open_dataset(tmp_path).train.source
    with pytest.raises(TrainingError, match="11 of 30 files cannot be read, such as"):
        source.read(torch.arange(30))
    forgiving = open_dataset(tmp_path, max_bad=0.5).train.source
    assert set(forgiving.read(torch.arange(30)).ids.tolist()) == set(range(11, 30))


@pytest.mark.parametrize("kind", ["jpeg", "png", "bmp"])
def test_sizes_that_do_not_fit_in_memory_are_refused_by_the_header(kind):
    with pytest.raises(BadFile, match=r"50000 × 50000 pixels are too many|DecompressionBomb"):
        decode(as_large(kind), 32)


def test_labels_from_a_table_take_the_place_of_folders(classes, tmp_path):
    names = list(open_dataset(classes).train.source.names)
    rows = [f'"{names[0]}",red', f'"{classes / names[1]}",blue', f'"{names[2]}",', "nowhere.jpg,green"]
    (tmp_path / "labels.csv").write_text("path,label\n" + "\n".join(rows))
    labels = open_dataset(classes, labels=tmp_path / "labels.csv").train.labels
    assert labels.names == ("blue", "red")
    assert labels.values.tolist() == [1, 0, *[-1] * (len(names) - 2)]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "there is no file"),
        ("file,label\na,b", "no column `path`"),
        ("path,label\nnowhere.jpg,a\nelsewhere.jpg,b", "labels no two classes.*such as"),
    ],
)
def test_tables_of_labels_that_say_nothing_are_refused(table, words, classes, tmp_path):
    if table is not None:
        (tmp_path / "labels.csv").write_text(table)
    with pytest.raises(InputError, match=words):
        open_dataset(classes, labels=tmp_path / "labels.csv")


def test_images_to_be_tested_on_may_lie_elsewhere(classes, tmp_path):
    other = tmp_path / "other"
    for i in range(3):
        write_image(other / ("b", "new", "a")[i] / f"{i}.png", width=50, height=70, seed=i)
    data = open_dataset(classes, test=other, workers=1)
    assert data.test.source.size == data.train.source.size
    names = data.test.labels.names
    assert [names[value] for value in data.test.labels.values.tolist()] == ["a", "b", "new"]
    assert data.train.labels.names == names
    assert open_dataset(classes).train.source.digest == data.train.source.digest
