"""Stored features: found by contents, bounded, and never believed when damaged."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from frossl.data import ArraySource
from frossl.evaluation import Extractor, FeatureCache, Labelled, extract_all
from frossl.evaluation.feature_cache import _to_bytes
from frossl.evaluation.features import BATCH_SIZE


@pytest.fixture
def images() -> Labelled:
    """150 different images; labels are their numbers."""
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (150, 3, 4, 4), dtype=np.uint8))
    ids = torch.arange(150)
    return Labelled(ArraySource(values), ids, ids)


class Counting:
    """Features that count how many images they were computed of, and in which batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, batch):
        self.batches.append(len(batch))
        return batch.images.flatten(1).float() / 7


def store(folder, images, *, chosen=slice(None), key=("a",), **options):
    cache, counting = FeatureCache(folder, **options), Counting()
    part = images.subset(images.ids[chosen])
    rows = extract_all(part, {"x": Extractor(counting, cache.open(48, *key))})["x"]
    cache.save()
    return rows, counting.batches


def test_what_is_stored_is_not_computed_again_and_equal_to_the_bit(tmp_path, images):
    (first, labels), batches = store(tmp_path / "features", images)
    assert batches == [BATCH_SIZE] * 3
    (second, same), none = store(tmp_path / "features", images)
    assert none == []
    assert torch.equal(first, second)
    assert torch.equal(labels, same)
    other = Labelled(ArraySource(images.source.images.flip(0)), images.ids, images.labels)
    (turned, _), none = store(tmp_path / "features", other)  # found by their contents, not by their places
    assert none == []
    assert torch.equal(turned, first.flip(0))


def test_a_subset_that_was_stored_leaves_the_rest_to_compute_in_batches_of_one_size(tmp_path, images):
    store(tmp_path, images, chosen=slice(0, 150, 3))
    (rows, labels), batches = store(tmp_path, images)
    assert batches == [BATCH_SIZE] * 2
    assert torch.equal(rows, images.source.images.flatten(1).float() / 7)
    assert labels.tolist() == list(range(150))


def test_an_image_that_changed_is_computed_anew(tmp_path, images):
    store(tmp_path, images)
    images.source.images[7] = 255 - images.source.images[7]
    (rows, _), batches = store(tmp_path, images)
    assert batches == [BATCH_SIZE]
    assert torch.equal(rows[7], images.source.images[7].flatten().float() / 7)


def test_another_key_and_features_by_id_are_kept_apart(tmp_path, images):
    store(tmp_path, images)
    assert store(tmp_path, images, key=("b",))[1] != []
    cache = FeatureCache(tmp_path)
    same = Labelled(
        ArraySource(images.source.images[:1].repeat(2, 1, 1, 1)), torch.arange(2), torch.arange(2)
    )
    extractor = Extractor(lambda batch: batch.ids[:, None].float(), cache.open(1, "crops"), by_id=True)
    for _ in range(2):
        assert extract_all(same, {"x": extractor})["x"][0].tolist() == [[0.0], [1.0]]


def broken(path, kind):
    content = bytearray(path.read_bytes())
    if kind == "cut off":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "a bit":
        content[-5] ^= 1
        path.write_bytes(content)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "header":
        path.write_bytes((1 << 60).to_bytes(8, "little") + bytes(content[8:]))
    elif kind == "foreign":
        save_file(load_file(path), path)  # without the header
    else:
        tensors = load_file(path)
        features = tensors["features"]
        if kind == "NaN":
            features[3, 3] = torch.nan
        elif kind == "type":
            features = features.double()
        elif kind == "width":
            features = features[:, :40]
        path.write_bytes(_to_bytes(path.stem, [bytes(row) for row in tensors["digests"].numpy()], features))


@pytest.mark.parametrize(
    "kind", ["cut off", "a bit", "empty", "header", "NaN", "type", "width", "foreign", "other name"]
)
def test_a_damaged_file_is_replaced(kind, tmp_path, images):
    (expected, _), _ = store(tmp_path, images)
    (path,) = tmp_path.iterdir()
    if kind == "other name":
        store(tmp_path / "other", images, key=("b",))
        (other,) = (tmp_path / "other").iterdir()
        path.write_bytes(other.read_bytes())
    else:
        broken(path, kind)
    (rows, _), batches = store(tmp_path, images)
    assert len(batches) == 3
    assert torch.equal(rows, expected)
    assert store(tmp_path, images)[1] == []


def test_the_cache_is_bounded_and_drops_what_was_unused_longest(tmp_path, images):
    limit = 60_000  # a file of 150 rows has 31 kB
    for number, key in enumerate("ab"):
        store(tmp_path, images, key=(key,), limit=2 * limit)
        for path in tmp_path.iterdir():
            os.utime(path, (number, number))
    store(tmp_path, images, key=("a",), limit=2 * limit)  # it was used again
    store(tmp_path, images, key=("c",), limit=80_000)
    assert store(tmp_path, images, key=("a",), limit=80_000)[1] == []
    assert store(tmp_path, images, key=("b",), limit=80_000)[1] != []
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 80_000


def test_rows_that_are_not_used_are_dropped_when_a_file_is_large_and_too_many_are_not_stored(
    tmp_path, images
):
    store(tmp_path, images, chosen=slice(0, 75), limit=40_000)
    store(tmp_path, images, chosen=slice(75, 150), limit=40_000)
    assert store(tmp_path, images, chosen=slice(75, 150), limit=40_000)[1] == []
    assert len(store(tmp_path, images, chosen=slice(0, 75), limit=40_000)[1]) == 2
    for _ in range(2):
        assert store(tmp_path, images, limit=10_000)[1] == [64, 64, 22]


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path, images):
    (tmp_path / "file").write_text("no folder")
    for _ in range(2):
        (rows, _), batches = store(tmp_path / "file" / "features", images)
        assert (len(batches), len(rows)) == (3, 150)


def test_two_writers_leave_a_whole_file(tmp_path, images):
    def work(chosen):
        for _ in range(5):
            store(tmp_path, images, chosen=chosen)

    threads = [threading.Thread(target=work, args=(slice(start, None, 2),)) for start in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (rows, _), _ = store(tmp_path, images)
    assert torch.equal(rows, images.source.images.flatten(1).float() / 7)
    assert len(list(tmp_path.iterdir())) == 1


def test_several_extractors_read_every_image_once(images):
    read = list[int]()

    class Source(ArraySource):
        def read(self, ids):
            read.extend(ids.tolist())
            return super().read(ids)

    counted = Labelled(Source(images.source.images), images.ids, images.labels)
    found = extract_all(
        counted, {"x": Extractor(Counting()), "y": Extractor(lambda b: nn.Flatten()(b.images))}
    )
    assert read == list(range(150))
    assert found["y"][0].shape == (150, 48)
