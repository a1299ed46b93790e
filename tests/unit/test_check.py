"""Looking through data, and the order in which it is read."""

from __future__ import annotations

import shutil

import pytest
import torch

import frossl
from frossl.augment import Augment, view_set
from frossl.data import ArraySource, FileSource, Loader, open_dataset
from frossl.data.loader import WINDOW, epoch_order
from tests.support.images import write_image


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_CACHE", str(tmp_path / "cache"))
    for i in range(14):
        part = "train" if i < 10 else "val"
        write_image(tmp_path / "data" / part / "ab"[i % 2] / f"{i:02d}.png", width=20, height=20, seed=i)
    return tmp_path / "data"


def test_copies_are_counted_and_named_where_they_cross(parts):
    shutil.copy(parts / "train" / "a" / "00.png", parts / "train" / "b" / "again.png")
    shutil.copy(parts / "train" / "a" / "00.png", parts / "train" / "b" / "and again.png")
    shutil.copy(parts / "train" / "b" / "03.png", parts / "val" / "a" / "leak.png")
    (parts / "train" / "a" / "empty.jpg").write_bytes(b"")
    (parts / "val" / "a" / "cut.png").write_bytes((parts / "val" / "a" / "10.png").read_bytes()[:60])
    found = frossl.check(parts, quiet=True)
    assert (found.images, found.test_images, found.size, found.classes) == (13, 6, 20, ("a", "b"))
    assert found.copies == 2
    assert found.crossing == (("b/03.png", "a/leak.png"),)
    assert set(found.bad_files) == {"a/empty.jpg", "test: a/cut.png"}


def test_arrays_and_data_without_a_test_part_are_looked_through(parts):
    found = frossl.check("cifar10-mini", quiet=True)
    assert (found.images, found.test_images, found.copies, found.bad_files) == (5000, 1000, 0, {})
    assert frossl.check(parts / "train", quiet=True).crossing == ()


# the order


def test_of_many_archives_a_window_is_read_at_a_time():
    sizes = torch.randint(1, 9, (3 * WINDOW + 5,))
    ends = tuple(sizes.cumsum(0).tolist())
    shard = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    order = epoch_order(ends[-1], seed=1, epoch=0, shard_ends=ends)
    assert order.sort().values.tolist() == list(range(ends[-1]))
    assert torch.equal(order, epoch_order(ends[-1], seed=1, epoch=0, shard_ends=ends))
    assert not torch.equal(order, epoch_order(ends[-1], seed=1, epoch=1, shard_ends=ends))
    first = {int(s): int((shard[order] == s).nonzero()[0]) for s in range(len(sizes))}
    last = {int(s): int((shard[order] == s).nonzero()[-1]) for s in range(len(sizes))}
    for place in range(0, ends[-1], 5):
        assert sum(first[s] <= place <= last[s] for s in first) <= WINDOW
    assert len(shard[order][:20].unique()) > 5  # shuffled among each other


def test_few_archives_are_shuffled_whole():
    assert torch.equal(
        epoch_order(40, seed=1, epoch=3, shard_ends=(10, 20, 30, 40)), epoch_order(40, seed=1, epoch=3)
    )


@pytest.mark.parametrize("processes", [2, 3])
def test_batches_and_views_do_not_depend_on_the_number_of_processes(processes):
    images = torch.randint(0, 256, (40, 3, 24, 24), dtype=torch.uint8)
    augment = Augment(
        view_set("asymmetric", size=20, views=4), mean=(0.5,) * 3, std=(0.2,) * 3, kernel="numba"
    )

    def walk(rank: int, processes: int) -> list:
        loader = Loader(ArraySource(images), batch_size=16, epochs=2, seed=3, rank=rank, processes=processes)
        return [(batch.ids, augment(batch, clock)[0]) for batch, clock in loader.batches()]

    whole = walk(0, 1)
    shares = zip(*(walk(rank, processes) for rank in range(processes)), strict=True)
    for (ids, views), of_all in zip(whole, shares, strict=True):
        assert torch.equal(ids, torch.cat([share[0] for share in of_all]))
        assert torch.equal(views, torch.cat([share[1] for share in of_all], dim=1))


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_batches_do_not_depend_on_the_number_of_decoders(workers, parts, monkeypatch):
    (parts / "train" / "a" / "00.png").write_bytes(b"damaged")
    reference = open_dataset(parts).train.source.read(torch.arange(10))
    monkeypatch.setattr("os.cpu_count", lambda: workers)
    source = open_dataset(parts).train.source
    assert isinstance(source, FileSource)
    batch = source.read(torch.arange(10))
    assert torch.equal(batch.images, reference.images)
    assert batch.ids.tolist() == reference.ids.tolist() == [1, 1, 2, 3, 4, 5, 6, 7, 8, 9]
