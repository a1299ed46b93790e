"""Data sets by name, each from small files in its own format; fractions; data sets of Hugging Face."""

from __future__ import annotations

import gzip
import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.datasets as classic
from PIL import Image

import frossl.data
from frossl.data import NAMED, open_dataset
from frossl.data.labels import stratified
from frossl.errors import ConfigError, FrosslError, InputError
from tests.support.images import write_image

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def everything(part) -> torch.Tensor:
    return part.source.read(torch.arange(len(part.source))).images


@pytest.mark.parametrize("given", [True, False])
def test_fashion_mnist(given, tmp_path, cache):
    root = tmp_path / "mine" if given else cache
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    written = {}
    for name, count in (("train", 30), ("t10k", 20)):
        images, labels = (
            RANDOM.integers(0, 256, (count, 28, 28), np.uint8),
            np.arange(count, dtype=np.uint8) % 10,
        )
        written[name] = images, labels
        for kind, array, code in (("images-idx3", images, 3), ("labels-idx1", labels, 1)):
            header = bytes([0, 0, 8, code]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            raw = header + array.tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(raw)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(raw))
    data = open_dataset("fashion-mnist", root=root if given else None)
    assert data.train.source.channels == 1
    np.testing.assert_array_equal(everything(data.train)[:, 0].numpy(), written["train"][0])
    assert data.test.labels.values.tolist() == written["t10k"][1].tolist()
    assert data.train.labels.names[8] == "Bag"


def test_stl10_has_its_unlabelled_part(tmp_path, monkeypatch):
    folder = tmp_path / "mine" / classic.STL10.base_folder
    folder.mkdir(parents=True)
    pixels, lists = {}, {"train_list": [], "test_list": []}

    def write(name: str, raw: bytes, of: str) -> None:
        (folder / name).write_bytes(raw)
        lists[of].append([name, hashlib.md5(raw).hexdigest()])

    for part, count, of in (
        ("train", 4, "train_list"),
        ("unlabeled", 7, "train_list"),
        ("test", 3, "test_list"),
    ):
        pixels[part] = RANDOM.integers(0, 256, (count, 3, 96, 96), np.uint8)
        write(f"{part}_X.bin", pixels[part].transpose(0, 1, 3, 2).tobytes(), of)  # columns first
        if part != "unlabeled":
            write(f"{part}_y.bin", (np.arange(count, dtype=np.uint8) + 1).tobytes(), of)
    (folder / "class_names.txt").write_text("\n".join("abcdefghij"))
    for of, rows in lists.items():
        monkeypatch.setattr(classic.STL10, of, sorted(rows, key=lambda row: ("unlabeled" in row[0], row[0])))
    data = open_dataset("stl10", root=tmp_path / "mine")
    expected = np.concatenate([pixels["train"], pixels["unlabeled"]])
    np.testing.assert_array_equal(everything(data.train).numpy(), expected)
    assert data.train.labels.values.tolist() == [0, 1, 2, 3] + [-1] * 7
    assert data.test.labels.values.tolist() == [0, 1, 2]
    (folder / "unlabeled_X.bin").write_bytes(b"cut off")
    with pytest.raises(InputError, match="does not hold stl10"):
        open_dataset("stl10", root=tmp_path / "mine")


def class_folders(root: Path, classes: int, images: int = 1, ending: str = ".JPEG") -> None:
    for c in range(classes):
        for i in range(images):
            path = root / f"n{c:08d}" / f"{c}_{i}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (12, 10), (c % 256, i, c // 256)).save(path, "JPEG")


def test_eurosat_is_one_folder_of_classes(cache):
    class_folders(cache / "eurosat" / "2750", 10, 3, ".jpg")
    data = open_dataset("eurosat")
    assert len(data.train.source) == 30
    assert data.test is None
    assert len(data.train.labels.names) == 10


@pytest.mark.parametrize("given", ["cache", "torchvision's folder", "the folder itself"])
def test_imagenette(given, tmp_path, cache):
    known = sorted(classic.Imagenette._WNID_TO_CLASS)
    root = cache if given == "cache" else tmp_path / "mine"
    for part, images in (("train", 3), ("val", 2)):
        for c, wnid in enumerate(known):
            for i in range(images):
                path = root / "imagenette2-160" / part / wnid / f"{i}.JPEG"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (20, 16), (c, i, 9)).save(path)
    inside = root / "imagenette2-160"
    place = {"cache": None, "torchvision's folder": root, "the folder itself": inside}[given]
    data = open_dataset("imagenette", root=place)
    assert (len(data.train.source), len(data.test.source)) == (30, 20)
    assert data.train.labels.names == tuple(known)
    assert data.test.labels.values.tolist() == [c for c in range(10) for _ in range(2)]


def test_tiny_imagenet_has_the_labels_of_its_annotations(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for c in range(200):
        path = root / "train" / f"n{c:08d}" / "images" / f"n{c:08d}_0.JPEG"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8), (c, 0, 0)).save(path)
    lines = []
    for i, c in enumerate((17, 3, 199)):
        write_image(root / "val" / "images" / f"val_{i}.jpg", width=8, height=8, seed=i)
        lines.append(f"val_{i}.jpg\tn{c:08d}\t0\t0\t7\t7")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    data = open_dataset("tiny-imagenet", root=root)
    assert data.train.labels.values.tolist() == list(range(200))
    assert data.test.labels.values.tolist() == [17, 3, 199]
    assert len(everything(data.test)) == 3
    assert not data.test.source.bad_files()
    (root / "val" / "val_annotations.txt").unlink()
    with pytest.raises(InputError, match="does not hold Tiny ImageNet"):
        open_dataset("tiny-imagenet", root=root)


def test_imagenet_is_checked_and_a_fraction_of_every_class_is_taken(tmp_path):
    class_folders(tmp_path / "train", 100, 5)
    class_folders(tmp_path / "val", 100)
    whole = open_dataset("imagenet100", root=tmp_path)
    assert (len(whole.train.source), len(whole.test.source)) == (500, 100)
    data = open_dataset("imagenet100", root=tmp_path, fraction=0.4)
    assert torch.bincount(data.train.labels.values).tolist() == [2] * 100
    assert len(data.test.source) == 100
    names = [data.train.source.name(i) for i in range(200)]
    rows = [list(whole.train.source.names).index(name) for name in names]
    assert rows == sorted(rows)
    assert torch.equal(everything(data.train), everything(whole.train)[rows])
    again = open_dataset("imagenet100", root=tmp_path, fraction=0.4)
    other = open_dataset("imagenet100", root=tmp_path, fraction=0.4, fraction_seed=1)
    assert again.train.source.digest == data.train.source.digest
    assert other.train.source.digest != data.train.source.digest
    with pytest.raises(InputError, match="100 class folders, and imagenet has 1000"):
        open_dataset("imagenet", root=tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        open_dataset("imagenet", root=tmp_path / "nowhere")
    with pytest.raises(InputError, match="data set that has a name"):
        open_dataset(tmp_path, root=tmp_path)


def test_imagenet100_is_chosen_out_of_the_whole(tmp_path):
    listed = (Path(frossl.data.__file__).parent / "imagenet100.txt").read_text().split()
    assert len(set(listed)) == 100
    known = sorted([*listed, *(f"n{c:08d}" for c in range(900))])
    assert len(set(known)) == 1000
    for part in ("train", "val"):
        for number, name in enumerate(known):
            path = tmp_path / part / name / "0.png"
            path.parent.mkdir(parents=True)
            Image.new("L", (4, 4), number % 256).save(path)
    data = open_dataset("imagenet100", root=tmp_path)
    assert (len(data.train.source), len(data.test.source)) == (100, 100)
    assert data.train.labels.names == tuple(sorted(listed))
    assert data.test.labels.values.tolist() == list(range(100))
    assert [name.partition("/")[0] for name in data.test.source.names] == sorted(listed)


def test_a_fraction_keeps_one_of_every_class_and_is_seeded():
    labels = torch.tensor([0] * 40 + [1] * 3 + [-1] * 20)
    chosen = stratified(labels, 63, fraction=0.1, seed=3)
    assert [int((labels[chosen] == value).sum()) for value in (0, 1, -1)] == [4, 1, 2]
    assert torch.equal(chosen, stratified(labels, 63, fraction=0.1, seed=3))
    assert not torch.equal(chosen, stratified(labels, 63, fraction=0.1, seed=4))
    assert len(stratified(None, 1000, fraction=0.25, seed=0)) == 250


def test_a_fraction_of_arrays_and_of_packed_images(tmp_path):
    import frossl
    from frossl.config import Data

    images = RANDOM.integers(0, 256, (40, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(40) % 4)
    packed = frossl.pack(tmp_path / "x.npz", out=tmp_path / "packed", quiet=True)
    for source in (tmp_path / "x.npz", packed):
        data = open_dataset(source, fraction=0.5)
        assert torch.bincount(data.train.labels.values).tolist() == [5] * 4
        assert data.train.source.digest != open_dataset(source).train.source.digest
    both = [everything(open_dataset(source, fraction=0.5).train) for source in (tmp_path / "x.npz", packed)]
    assert torch.equal(*both)
    for share in (0.0, 1.5):
        with pytest.raises(ConfigError, match="0 < share"):
            Data(fraction=share)


def test_what_cannot_be_fetched_says_what_to_give(monkeypatch, tmp_path):
    for name, kind in (("stl10", classic.STL10), ("cifar10", classic.CIFAR10)):
        monkeypatch.setattr(kind, "url", (tmp_path / "absent.tar.gz").as_uri())
        with pytest.raises(FrosslError, match="with --root"):
            open_dataset(name)
    for name in ("imagenet", "imagenet100", "tiny-imagenet"):
        with pytest.raises(InputError, match="with --root"):
            open_dataset(name)
    assert all(named.about for named in NAMED.values())


# Hugging Face


@pytest.fixture
def saved(tmp_path) -> Path:
    """A data set with three splits, one image of it damaged and one missing."""
    import datasets

    def rows(count: int) -> dict:
        encoded = []
        for i in range(count):
            file = io.BytesIO()
            Image.new("RGB", (16, 12), (10 * i, 50, 0)).save(file, "PNG")
            encoded.append({"bytes": file.getvalue(), "path": None})
        return {"picture": encoded, "kind": [i % 2 for i in range(count)]}

    features = datasets.Features(
        {"picture": datasets.Image(), "kind": datasets.ClassLabel(names=["cat", "dog"])}
    )
    train = rows(8)
    train["picture"][3] = {"bytes": train["picture"][3]["bytes"][:40], "path": None}
    train["picture"][5] = None
    splits = {"train": train, "validation": rows(4), "extra": rows(2)}
    found = {name: datasets.Dataset.from_dict(split, features=features) for name, split in splits.items()}
    datasets.DatasetDict(found).save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


def test_a_saved_data_set_of_hugging_face(saved):
    data = open_dataset(saved)
    assert (len(data.train.source), len(data.test.source)) == (8, 4)
    assert data.train.labels.names == ("cat", "dog")
    assert data.train.labels.values.tolist() == [0, 1] * 4
    batch = data.train.source.read(torch.arange(8))
    assert batch.ids.tolist() == [0, 1, 2, 4, 4, 6, 6, 7]
    assert batch.images[:, 0, 5, 5].tolist() == [0, 10, 20, 40, 40, 60, 60, 70]
    assert set(data.train.source.bad_files()) == {"train/3", "train/5"}
    assert open_dataset(saved).train.source.digest == data.train.source.digest


def test_a_data_set_of_hugging_face_without_images_or_network_says_so(tmp_path, monkeypatch):
    import datasets

    datasets.Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(str(tmp_path / "texts"))
    with pytest.raises(InputError, match="none of images"):
        open_dataset(tmp_path / "texts")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FrosslError, match="could not be opened"):
        open_dataset(f"hf:{tmp_path / 'nowhere'}")
