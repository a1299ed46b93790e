"""Sources, labels, data sets, loader."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest
import torch
import torchvision.datasets as classic
from PIL import Image

from frossl.data import ArraySource, Loader, copies_within, held_out, open_dataset
from frossl.data.decode import BadFile, central_square, decode
from frossl.data.labels import class_folder_labels
from frossl.data.named import balanced, mini_sheet
from frossl.errors import InputError
from tests.support.images import write_image


def test_a_folder_is_read_in_the_order_of_its_paths(photos):
    source = open_dataset(photos, size=32).train.source
    assert list(source.files.names) == sorted(source.files.names)
    assert len(source) == 12
    batch = source.read(torch.tensor([3, 0, 3]))
    assert batch.images.shape == (3, 3, 32, 32)
    assert batch.images.dtype == torch.uint8
    assert batch.ids.tolist() == [3, 0, 3]
    assert torch.equal(batch.images[0], batch.images[2])
    expected = central_square(decode((photos / source.name(0)).read_bytes(), 32))
    assert np.array_equal(batch.images[1], expected)


def test_decoding_equals_pillow(tmp_path):
    write_image(tmp_path / "x.png", width=32, height=32, seed=3)
    with Image.open(tmp_path / "x.png") as picture:
        expected = np.asarray(picture).transpose(2, 0, 1)
    assert np.array_equal(decode((tmp_path / "x.png").read_bytes(), 32), expected)


def test_decoding_turns_photographs_upright(tmp_path):
    upright = np.zeros((40, 40, 3), np.uint8)
    upright[:10] = 255  # white at the top
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned: show it rotated by 270 degrees
    Image.fromarray(np.rot90(upright)).save(tmp_path / "x.png", exif=exif)
    assert np.array_equal(decode((tmp_path / "x.png").read_bytes(), 40).transpose(1, 2, 0), upright)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    ramp = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "x.png")
    assert np.abs(decode((tmp_path / "x.png").read_bytes(), 32)[0] - ramp / 257).max() <= 1


def test_the_stored_size_is_the_typical_one_up_to_a_limit(photos, tmp_path):
    assert open_dataset(photos).size == 55  # between 54 and 56
    write_image(tmp_path / "big" / "a.jpg", width=900, height=700)
    write_image(tmp_path / "big" / "b.jpg", width=900, height=700)
    assert open_dataset(tmp_path / "big").size == 256
    assert open_dataset(tmp_path / "big", largest=128).size == 128


def test_bad_files_are_replaced_by_the_next_and_named(photos):
    whole = (photos / "1.jpg").read_bytes()
    (photos / "1.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "3.jpg").write_bytes(b"")
    (photos / "5.jpg").write_bytes(b"GIF89a nonsense")
    source = open_dataset(photos, size=32).train.source
    ids = torch.arange(len(source))
    for _ in range(2):
        batch = source.read(ids)
        bad = [list(source.files.names).index(name) for name in ("1.jpg", "3.jpg", "5.jpg")]
        assert set(ids.tolist()) - set(batch.ids.tolist()) == set(bad)
        after = {
            source.name(i): source.name(j) for i, j in zip(ids.tolist(), batch.ids.tolist(), strict=True)
        }
        assert after["5.jpg"] == "7.jpg"
    assert set(source.bad_files()) == {"1.jpg", "3.jpg", "5.jpg"}


def test_a_decompression_bomb_is_a_bad_file(tmp_path, monkeypatch):
    write_image(tmp_path / "x.png", width=64, height=64)
    monkeypatch.setattr("frossl.data.decode.MAX_PIXELS", 1000)
    with pytest.raises(BadFile, match="64 × 64 pixels are too many"):
        decode((tmp_path / "x.png").read_bytes(), 32)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "missing", "no folder or file .*missing"),
        (lambda p: p, "no images in"),
        (lambda p: write_image(p / "a.png", width=9, height=9) or p, "one image"),
        (lambda p: write_image(p / "a.png", width=9, height=9) or p / "a.png", "is a file"),
        (lambda p: "cifar10-minni", "did you mean cifar10-mini"),
        (lambda p: [(p / f"{i}.jpg").write_bytes(b"no") for i in range(3)] and p, "cannot be read as images"),
    ],
)
def test_folders_that_cannot_work_are_refused(tmp_path, make, words):
    with pytest.raises(InputError, match=words):
        open_dataset(make(tmp_path))


def test_class_folders_and_parts_are_found(tmp_path):
    for part, count in (("train", 4), ("val", 2)):
        for name in ("cat", "dog"):
            for i in range(count):
                write_image(tmp_path / part / name / f"{i}.png", width=16, height=16, seed=i)
    data = open_dataset(tmp_path)
    assert data.train.labels.names == ("cat", "dog")
    assert data.train.labels.values.tolist() == [0] * 4 + [1] * 4
    assert data.test.labels.values.tolist() == [0, 0, 1, 1]


def test_labels_come_from_the_first_folder_and_need_two_classes():
    labels = class_folder_labels(["b/x/1.png", "a/2.png", "3.png"])
    assert labels.names == ("a", "b")
    assert labels.values.tolist() == [1, 0, -1]
    assert class_folder_labels(["a/1.png", "2.png"]) is None


def test_held_out_images_are_stratified_and_the_same_every_time():
    labels = torch.tensor([0] * 50 + [1] * 10 + [-1] * 5)
    chosen = held_out(labels)
    assert chosen[:50].sum() == 10
    assert chosen[50:60].sum() == 2
    assert not chosen[60:].any()
    assert torch.equal(chosen, held_out(labels))


def held_out_without_copies(labels):
    """As version 0.1.0 had it: of every class the ids with the lowest hashes."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for value in labels[labels >= 0].unique().tolist():
        ids = (labels == value).nonzero()[:, 0].tolist()
        ids.sort(key=lambda i: hashlib.sha256(f"held out {i}".encode()).digest())
        chosen[ids[: round(0.2 * len(ids))]] = True
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_without_copies_the_images_held_out_are_those_of_0_1_0(seed):
    labels = torch.randint(-1, 7, (400,), generator=torch.Generator().manual_seed(seed))
    expected = held_out_without_copies(labels)
    assert torch.equal(held_out(labels), expected)
    assert torch.equal(held_out(labels, copies=torch.randperm(400)), expected)


@pytest.mark.parametrize("different", [40, 150, 390])
@pytest.mark.parametrize("seed", range(5))
def test_copies_are_on_one_side_and_classes_keep_their_share(different, seed):
    """Images drawn from so many, with labels that may differ between copies."""
    generator = torch.Generator().manual_seed(seed)
    copies = torch.randint(different, (400,), generator=generator)
    labels = torch.randint(-1, 4, (400,), generator=generator)
    chosen, known = held_out(labels, copies=copies), labels >= 0
    assert not (chosen & ~known).any()
    assert not set(copies[chosen].tolist()) & set(copies[known & ~chosen].tolist())
    largest = int(copies[known].bincount().max())
    for value in range(4):
        mine = labels == value
        assert abs(int(chosen[mine].sum()) - 0.2 * int(mine.sum())) <= largest
        assert (mine & ~chosen).any()
    assert torch.equal(chosen, held_out(labels, copies=copies.max() - copies))


def test_a_class_of_one_image_many_times_is_learned_from():
    labels, copies = torch.tensor([0] * 20 + [1] * 20), torch.tensor([0] * 20 + list(range(1, 21)))
    chosen = held_out(labels, copies=copies)
    assert chosen[:20].sum() == 0
    assert chosen[20:].sum() == 4


def test_files_of_one_length_are_read_once_and_again_when_they_change(tmp_path, monkeypatch):
    """Two seconds after they were written: what is younger may change again within its own time stamp."""
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("frossl.data.files.RECENT_NS", 0)
    folder = tmp_path / "photos"
    for i in range(6):
        write_image(folder / f"{i}.bmp", width=8, height=8, seed=i % 4)
    write_image(folder / "large.bmp", width=9, height=9)
    reads: list[int] = []

    def groups():
        reads.clear()
        source = open_dataset(folder, size=8).train.source
        content = source.content
        monkeypatch.setattr(source, "content", lambda id: reads.append(id) or content(id))
        (found,) = copies_within((source, torch.arange(7)))
        return found.tolist()

    assert groups() == [0, 1, 2, 3, 0, 1, 6]
    assert sorted(reads) == [0, 1, 2, 3, 4, 5]
    assert groups() == [0, 1, 2, 3, 0, 1, 6]
    assert reads == []
    write_image(folder / "5.bmp", width=8, height=8, seed=2)
    assert groups() == [0, 1, 2, 3, 0, 2, 6]
    assert reads == [5]
    for file in (tmp_path / "cache").rglob("*.digests"):
        file.write_bytes(file.read_bytes()[:-7])  # torn
    assert groups() == [0, 1, 2, 3, 0, 2, 6]


def test_cifar10_mini_is_balanced_and_what_it_was():
    data = open_dataset("cifar10-mini")
    for part, count in ((data.train, 500), (data.test, 100)):
        assert torch.bincount(part.labels.values).tolist() == [count] * 10
        assert part.source.images.shape == (10 * count, 3, 32, 32)
    digest = hashlib.sha256(
        data.train.source.images.numpy().tobytes() + data.test.source.images.numpy().tobytes()
    )
    assert digest.hexdigest() == "4770d0fe796131ba6124b1c186d8811b3d5849d986aa5cb69062aa298063270f"


@pytest.fixture
def small_cifar10(tmp_path, monkeypatch):
    """CIFAR-10 in its own file format with 5,100 + 1,010 random images, and checksums to match."""
    random = np.random.default_rng(0)
    folder = tmp_path / "cache" / classic.CIFAR10.base_folder
    folder.mkdir(parents=True)

    def write(name: str, content: dict) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def part(count: int) -> dict:
        pixels = random.integers(0, 256, (count, 3072), dtype=np.uint8)
        return {"data": pixels, "labels": (np.arange(count) * 7 % 10).tolist()}

    train, test = part(5100), part(1010)
    monkeypatch.setattr(classic.CIFAR10, "train_list", [write("data_batch_1", train)])
    monkeypatch.setattr(classic.CIFAR10, "test_list", [write("test_batch", test)])
    meta = write("batches.meta", {"label_names": [f"class {i}" for i in range(10)]})
    monkeypatch.setattr(classic.CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    return train, test


def test_cifar10_is_read_through_torchvision(small_cifar10):
    train, test = small_cifar10
    data = open_dataset("cifar10")
    assert torch.equal(data.train.source.images.flatten(1), torch.from_numpy(train["data"]))
    assert data.test.labels.values.tolist() == test["labels"]
    assert data.test.labels.names[3] == "class 3"


def test_cifar10_mini_without_the_clone_is_chosen_from_cifar10(small_cifar10, tmp_path, monkeypatch):
    monkeypatch.setattr("frossl.data.named.mini_sheet", lambda: None)
    train, _ = small_cifar10
    data = open_dataset("cifar10-mini")
    labels = torch.tensor(train["labels"])
    assert labels[balanced(labels, 500)].tolist() == data.train.labels.values.tolist()
    third_of_class_0 = (labels == 0).nonzero()[2, 0]
    assert torch.equal(
        data.train.source.images[20].flatten(), torch.from_numpy(train["data"][third_of_class_0])
    )


def test_the_sheet_is_in_the_clone():
    assert mini_sheet() is not None


def source(images: int) -> ArraySource:
    return ArraySource(torch.arange(images, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4))


def test_every_image_comes_once_an_epoch_in_another_order():
    loader = Loader(source(24), batch_size=8, epochs=3, seed=1)
    ids = [batch.ids for batch, _ in loader.batches()]
    assert len(ids) == loader.total == 9
    epochs = [torch.cat(ids[i : i + 3]) for i in (0, 3, 6)]
    for epoch in epochs:
        assert epoch.sort().values.tolist() == list(range(24))
    assert not torch.equal(epochs[0], epochs[1])


@pytest.mark.parametrize("start", [1, 4, 7])
def test_a_loader_continues_from_any_step(start):
    def walk(first: int) -> list[tuple]:
        loader = Loader(source(21), batch_size=8, epochs=4, seed=1)
        return [(b.ids.tolist(), b.images[:, 0, 0, 0].tolist(), c) for b, c in loader.batches(first)]

    assert walk(start) == walk(0)[start:]


def test_fewer_images_than_a_batch_still_give_batches():
    loader = Loader(source(5), batch_size=8, epochs=2, seed=0)
    assert [len(batch) for batch, _ in loader.batches()] == [5, 5]


def test_max_steps_ends_early_without_changing_the_clock():
    loader = Loader(source(24), batch_size=8, epochs=3, seed=1, max_steps=2)
    clocks = [clock for _, clock in loader.batches()]
    assert [(c.step, c.total) for c in clocks] == [(0, 9), (1, 9)]
