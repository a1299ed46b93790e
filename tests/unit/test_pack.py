"""Packed pixels are those of the files; packing goes on where it stood and notices damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import frossl
from frossl.data import FileSource, open_dataset, pack
from frossl.errors import InputError
from tests.support.images import write_image


@pytest.fixture
def parted(tmp_path) -> Path:
    """600 images to learn from, with two bad ones among them, and six to be tested on."""
    for i in range(600):
        write_image(tmp_path / "photos" / "train" / "ab"[i % 2] / f"{i:03d}.png", width=9, height=9, seed=i)
    for i in range(6):
        write_image(tmp_path / "photos" / "val" / "ab"[i % 2] / f"{i}.png", width=9, height=9, seed=1000 + i)
    for name in ("a/010.png", "b/301.png"):
        (tmp_path / "photos" / "train" / name).write_bytes(b"no image")
    return tmp_path / "photos"


def good(part) -> tuple[torch.Tensor, list[str]]:
    ids = torch.arange(len(part.source))
    batch = part.source.read(ids)
    itself = batch.ids == ids
    return batch.images[itself], [part.source.name(i) for i in ids[itself].tolist()]


def test_packed_images_labels_and_names_are_those_of_the_files(parted, tmp_path):
    out = frossl.pack(parted, out=tmp_path / "packed", quiet=True)
    files, packed = open_dataset(parted), open_dataset(out)
    for one, other in ((files.train, packed.train), (files.test, packed.test)):
        (pixels, names), (again, same) = good(one), good(other)
        assert torch.equal(pixels, again)
        assert names == same
        kept = [i for i in range(len(one.source)) if one.source.name(i) in set(names)]
        assert one.labels.values[kept].tolist() == other.labels.values.tolist()
    assert len(packed.train.source) == 598
    assert packed.train.labels.names == ("a", "b")
    assert packed.statistics == files.statistics


def test_what_was_begun_goes_on_where_it_stood(parted, tmp_path):
    whole = frossl.pack(parted, out=tmp_path / "whole", quiet=True)

    class Cut(Exception):
        pass

    def cut(done: int, total: int) -> None:
        if done >= 256:
            raise Cut

    with pytest.raises(Cut):
        pack(open_dataset(parted), tmp_path / "cut", progress=cut)
    assert json.loads((tmp_path / "cut" / "begun.json").read_text())["done"] == 256
    with (tmp_path / "cut" / "images.bin").open("ab") as file:
        file.write(b"half a block that was never counted")
    seen: list[int] = []
    pack(open_dataset(parted), tmp_path / "cut", progress=lambda done, total: seen.append(done))
    assert seen[0] == 512
    for name in ("images.bin", "pack.json", "test/images.bin"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()
    assert not (tmp_path / "cut" / "begun.json").exists()


def test_packing_again_checks_what_is_there(parted, tmp_path):
    out = frossl.pack(parted, out=tmp_path / "packed", quiet=True)
    frossl.pack(parted, out=out, quiet=True)
    with pytest.raises(InputError, match="other images, or of another size"):
        frossl.pack(parted, out=out, size=16, quiet=True)
    raw = bytearray((out / "images.bin").read_bytes())
    raw[1000] ^= 1
    (out / "images.bin").write_bytes(raw)
    with pytest.raises(InputError, match="another checksum"):
        frossl.pack(parted, out=out, quiet=True)
    (out / "images.bin").write_bytes(raw[:-1])
    with pytest.raises(InputError, match="gone or cut off"):
        open_dataset(out)


def test_a_folder_with_something_else_is_left_alone(parted, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "images.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match="something else"):
        frossl.pack(parted, out=tmp_path / "taken", quiet=True)
    assert (tmp_path / "taken" / "images.bin").read_bytes() == b"mine"


def test_a_run_learns_from_packed_images_what_it_learns_from_files(parted, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "2")
    for name in ("a/010.png", "b/301.png"):
        (parted / "train" / name).unlink()
    out = frossl.pack(parted, out=tmp_path / "packed", quiet=True)
    runs = [
        frossl.pretrain(data, out=tmp_path / f"run{i}", batch_size=64, quiet=True)
        for i, data in enumerate((parted, out))
    ]
    one, other = (torch.load(sorted((run.path / "checkpoints").iterdir())[-1]) for run in runs)
    for name, value in one["method"].items():
        assert torch.equal(value, other["method"][name]), name


def test_a_pack_that_was_stopped_at_once_goes_on(photos, tmp_path, monkeypatch):
    read = FileSource.read

    def killed(source, ids, *, whole=False):
        if len(ids) > 1:
            raise KeyboardInterrupt
        return read(source, ids, whole=whole)

    with monkeypatch.context() as patch:
        patch.setattr(FileSource, "read", killed)
        with pytest.raises(KeyboardInterrupt):
            frossl.pack(photos, out=tmp_path / "packed", size=16, quiet=True)
    assert (tmp_path / "packed" / "images.bin").exists()
    assert (
        len(open_dataset(frossl.pack(photos, out=tmp_path / "packed", size=16, quiet=True)).train.source)
        == 12
    )


def test_a_pack_takes_no_folder_that_holds_something_else(photos, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (photos, tmp_path / "file"):
        with pytest.raises(InputError, match="choose another --out"):
            frossl.pack(photos, out=out, size=16, quiet=True)


def test_what_cannot_be_packed_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 16, 16, 3), np.uint8))
    with pytest.raises(InputError, match="leave out --size"):
        frossl.pack(tmp_path / "x.npy", out=tmp_path / "x", size=8, quiet=True)


def test_what_was_left_out_is_named(photos, tmp_path):
    (photos / "broken.jpg").write_bytes(b"x")
    frossl.pack(photos, out=tmp_path / "packed", size=16, quiet=True)
    assert "broken.jpg" in (tmp_path / "packed" / "bad_files.txt").read_text()


@pytest.mark.parametrize("content", ["[]", "null", '{"version": 1}'])
def test_a_damaged_description_is_refused(content, photos, tmp_path):
    folder = frossl.pack(photos, out=tmp_path / "packed", size=16, quiet=True)
    (folder / "pack.json").write_text(content)
    with pytest.raises(InputError, match="pack the images again"):
        open_dataset(folder)
