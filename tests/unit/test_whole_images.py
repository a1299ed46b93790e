"""Views are cropped from whole images: where, and how often, is what torchvision does on the same files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torchvision.transforms import RandomResizedCrop

import frossl
from frossl.augment import Augment, OwnViews, ViewSpec, plan
from frossl.augment.plan import AREA, CROP_ATTEMPTS, LEFT, RATIO, TOP
from frossl.augment.random import uniforms
from frossl.config import Config
from frossl.data import ArraySource, FileSource, Source, open_dataset
from frossl.data.arrays import MappedSource
from frossl.data.decode import MAX_ASPECT_RATIO, decode
from frossl.data.sources import padded_batch
from frossl.types import Batch, Clock

CLOCK = Clock(step=0, total=9, epoch=1, seed=4)
SHAPES = ((40, 120), (48, 64), (40, 40), (160, 40))
"""Heights and widths of images of 3:1, 4:3, 1:1 and 1:4."""


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    coarse = torch.rand(1, 3, 5, 7, generator=torch.Generator().manual_seed(seed))
    fine = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)[0]
    return (fine * 255).round().byte().numpy()


def save(image: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image.transpose(1, 2, 0)).save(path)


@pytest.fixture
def photos(tmp_path) -> Path:
    """Images of several aspect ratios, as files."""
    for i, (height, width) in enumerate([*SHAPES, (33, 47), (90, 60)]):
        save(smooth(height, width, i), tmp_path / "photos" / "ab"[i % 2] / f"{i}.png")
    return tmp_path / "photos"


def test_parameters_are_distributed_as_torchvisions_at_every_aspect_ratio():
    """All in one padded batch, so that no image is drawn by the sides of another."""
    spec, each = ViewSpec(scale=(0.08, 1.0)), 2500
    sizes = torch.tensor(SHAPES).repeat(each, 1)
    height, width = sizes.unbind(1)
    boxes = plan(spec, torch.arange(len(sizes)), torch.arange(1), CLOCK, height=height, width=width).box
    torch.manual_seed(0)
    for i, (H, W) in enumerate(SHAPES):
        ours, image = boxes[i :: len(SHAPES)].double(), torch.zeros(3, H, W)
        theirs = [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(each)]
        theirs = torch.tensor(theirs).double()
        for part in (
            lambda b: b[:, 2] * b[:, 3],
            lambda b: b[:, 3] / b[:, 2],
            lambda b: b[:, 0],
            lambda b: b[:, 1],
        ):
            assert stats.ks_2samp(part(ours), part(theirs)).pvalue > 1e-3, (H, W)


def test_margins_are_seen_as_often_as_torchvision_sees_them(tmp_path):
    """A photograph of 4:3 whose left and right sixteenths, outside of its central square, are marked."""
    image = np.zeros((3, 96, 128), np.uint8)
    image[:, :, :8] = image[:, :, -8:] = 255
    for name in "ab":
        save(image, tmp_path / "photos" / f"{name}.png")
    source = open_dataset(tmp_path / "photos", size=48).train.source
    views, ids = 1000, torch.zeros(1, dtype=torch.long)
    augment = Augment([ViewSpec(size=24, count=views, scale=(0.08, 1.0))], mean=(0.0,) * 3, std=(1.0,) * 3)
    (ours,) = augment(source.read(ids, whole=True), CLOCK)
    (squares,) = augment(source.read(ids), CLOCK)
    crop, whole = RandomResizedCrop(24, (0.08, 1.0), antialias=True), torch.from_numpy(image).float() / 255
    torch.manual_seed(0)
    theirs = torch.stack([crop(whole) for _ in range(views)])
    seen = [int((found.flatten(0, -4).amax((1, 2, 3)) > 0.5).sum()) for found in (ours, theirs, squares)]
    assert 200 < seen[1] < 800
    assert seen[2] == 0
    table = [[count, views - count] for count in seen[:2]]
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("kernel", ["torch", "numba"])
@pytest.mark.parametrize("size", [40, 96])
def test_padding_and_neighbours_change_no_view(kernel, size):
    shapes = [(size, size * 2), (size * 3, size), (size, size), (size, size + 7)]
    images, ids = [smooth(*shape, seed=i) for i, shape in enumerate(shapes)], torch.tensor([5, 0, 9, 3])
    specs = [ViewSpec(size=32, count=2, flip=0.5, jitter=0.8), ViewSpec(size=16, count=3, blur=0.5)]
    augment = Augment(specs, mean=(0.4,) * 3, std=(0.2,) * 3, kernel=kernel)
    batch = padded_batch(images, ids)
    assert batch.images.shape == (4, 3, size * 3, size * 2)
    together = augment(batch, CLOCK)
    for i, image in enumerate(images):
        alone = augment(Batch(torch.from_numpy(image)[None], ids[i : i + 1]), CLOCK)
        for whole, one in zip(together, alone, strict=True):
            assert torch.equal(whole[:, i], one[:, 0])
    kept = batch[torch.tensor([False, True, True, False])]
    for whole, some in zip(together, augment(kept, CLOCK), strict=True):
        assert torch.equal(whole[:, 1:3], some)


def test_crops_are_those_of_a_scalar_reference():
    """Another route: one image after the other, in Python's own numbers, as torchvision draws them."""
    shapes = [(40, 40), (57, 40), (40, 319)]
    for spec in (ViewSpec(scale=(0.08, 1.0)), ViewSpec(scale=(0.9, 1.0), ratio=(2.0, 3.0))):
        height, width = torch.tensor(shapes).repeat(50, 1).unbind(1)
        ids = torch.arange(len(height))
        boxes = plan(spec, ids, torch.arange(1), CLOCK, height=height, width=width).box.tolist()
        draws = uniforms(seed=4, epoch=1, ids=ids, views=torch.arange(1), count=RATIO + CROP_ATTEMPTS)[0]
        for box, u, H, W in zip(boxes, draws.tolist(), height.tolist(), width.tolist(), strict=True):
            assert box == scalar_crop(spec, u, H, W)


def scalar_crop(spec: ViewSpec, u: list[float], height: int, width: int) -> list[int]:
    low, high = map(math.log, spec.ratio)
    for attempt in range(CROP_ATTEMPTS):
        area = height * width * (spec.scale[0] + u[AREA + attempt] * (spec.scale[1] - spec.scale[0]))
        ratio = math.exp(low + u[RATIO + attempt] * (high - low))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return [int(u[TOP] * (height - h + 1)), int(u[LEFT] * (width - w + 1)), h, w]
    if width / height < spec.ratio[0]:
        w, h = width, round(width / spec.ratio[0])
    elif width / height > spec.ratio[1]:
        w, h = round(height * spec.ratio[1]), height
    else:
        w, h = width, height
    return [(height - h) // 2, (width - w) // 2, h, w]


def test_a_file_is_decoded_whole_with_its_shorter_side_resized(photos):
    for path in sorted(photos.rglob("*.png")):
        with Image.open(path) as image:
            scale = 32 / min(image.size)
            shape = [round(side * scale) for side in image.size]
            expected = np.asarray(image.resize(shape, Image.Resampling.BICUBIC)).transpose(2, 0, 1)
        assert np.array_equal(decode(path.read_bytes(), 32), expected)


def test_ends_of_very_long_images_are_cut_off(tmp_path):
    image = smooth(20, 20 * 50)
    save(image, tmp_path / "long.png")
    decoded = decode((tmp_path / "long.png").read_bytes(), 20)
    middle = (image.shape[2] - 20 * MAX_ASPECT_RATIO) // 2
    assert np.array_equal(decoded, image[:, :, middle : middle + 20 * MAX_ASPECT_RATIO])


def sources(photos: Path, folder: Path) -> dict[str, Source]:
    array = np.stack([smooth(36, 50, seed) for seed in range(6)])
    np.save(folder / "array.npy", array)
    packed = frossl.pack(photos, out=folder / "packed", size=32, quiet=True)
    wide = frossl.pack(folder / "array.npy", out=folder / "wide", quiet=True)
    return {
        "files": open_dataset(photos, size=32).train.source,
        "array": ArraySource(torch.from_numpy(array)),
        "mapped": MappedSource(folder / "array.npy"),
        "packed": open_dataset(packed).train.source,
        "packed, of one size": open_dataset(wide).train.source,
    }


def test_squares_are_the_centers_of_whole_images_in_every_source(photos, tmp_path):
    made = sources(photos, tmp_path)
    for name, source in made.items():
        ids = torch.tensor([4, 0, 3, 1])
        whole, squares = source.read(ids, whole=True), source.read(ids)
        assert squares.sizes is None
        assert squares.images.shape == (4, 3, source.size, source.size), name
        for image, square in zip(whole.unpadded(), squares.images, strict=True):
            height, width = image.shape[1:]
            assert min(height, width) == source.size
            top, left = (height - source.size) // 2, (width - source.size) // 2
            assert torch.equal(square, image[:, top : top + source.size, left : left + source.size]), name
        some = source.subset(torch.tensor([0, 3, 4])).read(torch.tensor([2, 0, 1]), whole=True)
        for one, other in zip(some.unpadded(), whole.unpadded(), strict=False):
            assert torch.equal(one, other), name
    for one, other in (("files", "packed"), ("array", "packed, of one size")):
        pairs = [made[name].read(torch.arange(6), whole=True).unpadded() for name in (one, other)]
        assert all(torch.equal(a, b) for a, b in zip(*pairs, strict=True))


def test_decoded_images_are_cached_within_the_limit(photos, monkeypatch):
    monkeypatch.setattr("frossl.data.sources.DECODED_CACHE_BYTES", 6 * 3 * 32 * 32)
    source = open_dataset(photos, size=32).train.source
    assert isinstance(source, FileSource)
    first = source.read(torch.arange(6), whole=True).unpadded()
    assert source._cache is not None
    assert sum(image is not None for image in source._cache) < 6  # they are larger than squares
    assert all(map(torch.equal, source.read(torch.arange(6), whole=True).unpadded(), first))


@pytest.mark.parametrize("damage", ["gone", "cut", "huge", "both huge", "negative", "swapped"])
def test_damaged_sizes_of_a_pack_are_refused(photos, tmp_path, damage):
    out = frossl.pack(photos, out=tmp_path / "packed", size=32, quiet=True)
    file = out / "sizes.bin"
    sizes = np.fromfile(file, np.int32)
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        sizes[:-1].tofile(file)
    elif damage == "both huge":
        sizes[:2] = 2**31 - 1
        sizes.tofile(file)
    elif damage == "swapped":
        sizes[[0, 1]] = [32, 33]
        sizes.tofile(file)
    else:
        sizes[0] = {"huge": 2**31 - 1, "negative": -5}[damage]
        sizes.tofile(file)
    with pytest.raises(frossl.errors.InputError, match="pack the images again"):
        open_dataset(out)


@pytest.mark.parametrize(
    "claimed", [{"size": 10**30}, {"size": 2**40}, {"size": 2**31}, {"images": 10**30}, {"images": 10**10}]
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_pack_that_claims_more_than_it_holds_is_refused(photos, tmp_path, version, claimed):
    out = frossl.pack(photos, out=tmp_path / "packed", size=32, quiet=True)
    known = json.loads((out / "pack.json").read_text())
    (out / "pack.json").write_text(json.dumps({**known, "version": version, **claimed}))
    with pytest.raises(frossl.errors.InputError, match="pack the images again"):
        open_dataset(out)


def test_a_transform_of_the_users_receives_whole_images():
    images = [smooth(24, 36), smooth(50, 24)]
    received = []

    def transform(image: torch.Tensor) -> torch.Tensor:
        received.append(image)
        return image[:, :16, :16].float()

    OwnViews(transform)(padded_batch(images, torch.tensor([1, 2])), CLOCK)
    assert [tuple(image.shape) for image in received[::2]] == [(3, 24, 36), (3, 50, 24)]
    assert torch.equal(received[0], torch.from_numpy(images[0]))


def test_runs_of_0_1_0_crop_arrays_whole_and_files_and_packs_as_squares(photos, tmp_path):
    config = frossl.engine.settle(Config(), open_dataset(photos, size=32))
    old = Config.from_toml(config.to_toml().replace("keep_aspect = true\n", ""))
    np.save(tmp_path / "wide.npy", np.stack([smooth(32, 40, seed) for seed in range(6)]))
    packed = frossl.pack(photos, out=tmp_path / "packed", size=32, quiet=True)
    for data, whole in ((photos, False), (packed, False), (tmp_path / "wide.npy", True)):
        source = open_dataset(data, size=32).train.source
        assert frossl.engine.crops_whole_images(old, source) is whole
        assert frossl.engine.crops_whole_images(config, source) is True


def test_a_run_trains_on_whole_images_and_one_of_0_1_0_on_their_squares(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FROSSL_MAX_STEPS", "1")
    run = frossl.pretrain(photos, out=tmp_path / "run", quiet=True, views=2, epochs=1)
    assert run.config.data.keep_aspect is True
    state = frossl.engine.build(run.config, open_dataset(photos, size=run.config.data.size))
    ((batch, _),) = state.loader.batches()
    assert batch.sizes is not None
    old = run.config.to_toml().replace("keep_aspect = true\n", "")
    state = frossl.engine.build(Config.from_toml(old), open_dataset(photos, size=run.config.data.size))
    ((batch, _),) = state.loader.batches()
    assert batch.sizes is None
    assert batch.images.shape[-1] == batch.images.shape[-2]
