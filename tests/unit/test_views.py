"""Views against torchvision for equal parameters, and the promises of the contract."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor
from torchvision.transforms import ColorJitter, GaussianBlur, InterpolationMode, RandomResizedCrop
from torchvision.transforms import functional as classic

import frossl
from frossl.augment import Augment, ViewSpec, plan, view_set, view_sheet
from frossl.augment.geometry import LARGE_IMAGE_SIZE, crop_resize_flip
from frossl.augment.photometry import blur, brightness, contrast, gray, hue, jitter, saturation, solarize
from frossl.errors import InputError
from frossl.types import Batch, Clock
from tests.support.runs import USUAL

CLOCK = Clock(step=0, total=10, epoch=2, seed=5)


@pytest.fixture
def images() -> Tensor:
    return torch.randint(
        0, 256, (12, 3, 40, 31), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )


@pytest.fixture
def floats() -> Tensor:
    return torch.rand(12, 3, 24, 24, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [16, 24, 48])
def test_crop_resize_flip_equals_torchvision(images, size, interpolation):
    spec = ViewSpec(size=size, count=2, scale=(0.05, 1.0), interpolation=interpolation, flip=0.5)
    chosen = plan(spec, torch.arange(12), torch.arange(2), CLOCK, height=40, width=31)
    (flips,) = chosen.parameters["flip"]
    assert flips.any()
    assert not flips.all()
    ours = crop_resize_flip(images, chosen, size=size, interpolation=interpolation)
    for p, (box, flip) in enumerate(
        zip(chosen.box.tolist(), chosen.parameters["flip"][0].tolist(), strict=True)
    ):
        theirs = classic.resized_crop(
            images[p % 12].float() / 255, *box, [size, size], InterpolationMode(interpolation), antialias=True
        ).clamp(0, 1)
        theirs = classic.hflip(theirs) if flip else theirs
        torch.testing.assert_close(ours[p], theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [64, 96, 224])
def test_large_images_are_cropped_and_resized_as_torchvision_does_it(size, interpolation):
    """To one step of 255 for uint8 images, to one and a half for floats: pixels are rounded to bytes."""
    images = torch.nn.functional.interpolate(torch.rand(4, 3, 9, 9), (150, 130), mode="bicubic").clamp(0, 1)
    images = (images * 255).round().byte()
    spec = ViewSpec(size=size, count=2, scale=(0.05, 1.0), interpolation=interpolation, flip=0.5)
    chosen = plan(spec, torch.arange(4), torch.arange(2), CLOCK, height=150, width=130)
    ours = crop_resize_flip(images, chosen, size=size, interpolation=interpolation)
    for p, (box, flip) in enumerate(
        zip(chosen.box.tolist(), chosen.parameters["flip"][0].tolist(), strict=True)
    ):
        how = InterpolationMode(interpolation)
        theirs = classic.resized_crop(images[p % 4], *box, [size, size], how, antialias=True)
        exact = classic.resized_crop(images[p % 4] / 255, *box, [size, size], how, antialias=True).clamp(0, 1)
        theirs, exact = (classic.hflip(x) if flip else x for x in (theirs, exact))
        torch.testing.assert_close(ours[p] * 255, theirs.float(), rtol=0, atol=1.001)
        torch.testing.assert_close(ours[p], exact, rtol=0, atol=1.51 / 255)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(
    ("stored", "size"), [((40, 31), 16), ((32, 32), 32), ((60, 70), 96), ((90, 120), 64)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_loops_make_the_views_that_matrices_make(stored, size, interpolation, threads):
    """To 5e-4 in [0, 1], where blurs end; to steps of 255 where matrices have given way to bytes."""
    images = torch.nn.functional.interpolate(torch.rand(24, 3, 7, 9), stored, mode="bicubic").clamp(0, 1)
    batch = Batch((images * 255).round().byte(), torch.arange(24))
    specs = [
        ViewSpec(size=size, count=2, flip=0.5, solarize=0.3, hue=0.5, interpolation=interpolation, **part)
        for part in ({}, {"jitter": 0.8, "saturation": 0.9, "gray": 0.2, "blur": 0.4})
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        loops, matrices = (
            Augment(specs, mean=(0.4, 0.5, 0.6), std=(1.0,) * 3, kernel=kernel)(batch, CLOCK)[0]
            for kernel in ("numba", "torch")
        )
    finally:
        torch.set_num_threads(before)
    # solarize turns what lies at its threshold either way
    near = (loops - matrices).abs() <= (5e-4 if max(stored) < LARGE_IMAGE_SIZE else 0.02)
    assert near.float().mean() > 0.999


@pytest.mark.parametrize(("stored", "size"), [(32, 24), (64, 64), (100, 96)])
@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_views_do_not_depend_on_the_batch_nor_on_how_much_is_made_at_once(stored, size, kernel, monkeypatch):
    images = torch.randint(0, 256, (7, 3, stored, stored), dtype=torch.uint8)
    ids = torch.tensor([3, 99, 4, 17, 0, 5, 6])
    specs = view_set("asymmetric", size=size, views=3)
    augment = Augment(specs, mean=(0.5,) * 3, std=(0.25,) * 3, kernel=kernel)
    (whole,) = augment(Batch(images, ids), CLOCK)
    monkeypatch.setattr("frossl.augment.CHUNK_BYTES", 1)
    (single,) = augment(Batch(images, ids), CLOCK)
    torch.testing.assert_close(single, whole, rtol=0, atol=2e-5)
    (other,) = augment(Batch(images[[4, 1]], ids[[4, 1]]), CLOCK)
    torch.testing.assert_close(other, whole[:, [4, 1]], rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        (brightness, classic.adjust_brightness, 0.2, 1.8),
        (contrast, classic.adjust_contrast, 0.2, 1.8),
        (saturation, classic.adjust_saturation, 0.2, 1.8),
        (hue, classic.adjust_hue, -0.5, 0.5),
    ],
)
def test_adjustments_equal_torchvision(floats, ours, theirs, low, high):
    amounts = torch.linspace(low, high, 12)
    expected = torch.stack([theirs(x, a) for x, a in zip(floats, amounts.tolist(), strict=True)])
    torch.testing.assert_close(ours(floats, amounts), expected, rtol=0, atol=3e-6)


def test_jitter_applies_the_four_adjustments_in_each_images_own_order(floats):
    spec = ViewSpec(size=24, jitter=0.7, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2)
    chosen = plan(spec, torch.arange(12), torch.arange(1), CLOCK, height=24, width=24)
    classics = (
        classic.adjust_brightness, classic.adjust_contrast, classic.adjust_saturation, classic.adjust_hue,
    )  # fmt: skip
    amounts, order = chosen.parameters["jitter"]
    ours = jitter(floats, amounts, order)
    untouched = 0
    for p in range(12):
        theirs = floats[p]
        for which in order[p].tolist():
            theirs = classics[which](theirs, amounts[p, which].item())
        untouched += amounts[p].tolist() == [1, 1, 1, 0]
        torch.testing.assert_close(ours[p], theirs, rtol=0, atol=1e-5)
    assert 0 < untouched < 12


def test_gray_and_solarize_equal_torchvision_where_chosen(floats):
    chosen = torch.arange(12) % 2 == 0
    for ours, theirs in (
        (gray, lambda x: classic.rgb_to_grayscale(x, 3)),
        (solarize, lambda x: classic.solarize(x, 128 / 255)),
    ):
        result = ours(floats, chosen)
        torch.testing.assert_close(result[chosen], theirs(floats)[chosen], rtol=0, atol=1e-6)
        assert torch.equal(result[~chosen], floats[~chosen])


@pytest.mark.parametrize("size", [24, 64, 100])
def test_blur_equals_torchvision_where_chosen(size):
    floats = torch.rand(12, 3, size, size)
    sigma = torch.linspace(0.1, 2.0, 12) * (torch.arange(12) % 3 > 0)
    result = blur(floats, sigma, largest=2.0)
    for x, y, s in zip(floats, result, sigma.tolist(), strict=True):
        expected = classic.gaussian_blur(x, [13, 13], [s, s]) if s else x
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-6)


def test_one_channel_works():
    images = torch.randint(0, 256, (4, 1, 28, 28), dtype=torch.uint8)
    spec = ViewSpec(size=20, count=2, **{**USUAL, "gray": 0.5})
    (views,) = Augment((spec,), mean=(0.5,), std=(0.5,))(Batch(images, torch.arange(4)), CLOCK)
    assert views.shape == (2, 4, 1, 20, 20)
    assert views.isfinite().all()


def test_crop_boxes_are_distributed_as_torchvisions(images):
    spec = ViewSpec(scale=(0.08, 1.0))
    ours = plan(spec, torch.arange(4000), torch.arange(1), CLOCK, height=40, width=31).box.double()
    torch.manual_seed(0)
    theirs = torch.tensor(
        [RandomResizedCrop.get_params(images[0], [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)]
    ).double()
    for of in (
        lambda b: b[:, 2] * b[:, 3],
        lambda b: b[:, 3] / b[:, 2],
        lambda b: b[:, 0],
        lambda b: b[:, 1],
    ):
        assert stats.ks_2samp(of(ours), of(theirs)).pvalue > 1e-3


def test_all_other_parameters_are_distributed_as_torchvisions():
    count = 6000
    spec = ViewSpec(**USUAL, brightness=0.8, contrast=0.6, saturation=0.4, hue=0.2, solarize=0.3)

    def drawn_with(spec: ViewSpec, images: int, views: int) -> list[Tensor]:
        chosen = plan(spec, torch.arange(images), torch.arange(views), CLOCK, height=40, width=40)
        return [part for parts in chosen.parameters.values() for part in parts]

    flips, amounts, order, grays, sigma, solarized = drawn_with(replace(spec, jitter=1.0), count // 2, 2)
    torch.manual_seed(0)
    strengths = (spec.brightness, spec.contrast, spec.saturation)
    jitter = ColorJitter(*strengths, spec.hue)
    ranges = (jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
    drawn = [ColorJitter.get_params(*ranges) for _ in range(count)]
    for part in range(4):
        theirs = [draw[part + 1] for draw in drawn]
        assert stats.ks_2samp(amounts[:, part], theirs).pvalue > 1e-3
    orders = [
        torch.unique(order, dim=0, return_counts=True)[1]
        for order in (order, torch.stack([draw[0] for draw in drawn]))
    ]
    assert [len(counts) for counts in orders] == [24, 24]
    assert stats.chi2_contingency(torch.stack(orders).numpy()).pvalue > 1e-3
    blurred = sigma[sigma > 0]
    theirs = [GaussianBlur.get_params(*spec.sigma) for _ in range(len(blurred))]
    assert stats.ks_2samp(blurred, theirs).pvalue > 1e-3
    sometimes = drawn_with(spec, count, 1)[1]
    for chosen, share in (
        (flips, spec.flip),
        (grays, spec.gray),
        (sigma > 0, spec.blur),
        (solarized, spec.solarize),
        (sometimes[:, 3] != 0, spec.jitter),
    ):
        assert stats.binomtest(int(chosen.sum()), count, share).pvalue > 1e-3


def test_parameters_of_a_view_are_independent_of_each_other():
    spec = ViewSpec(**{**USUAL, "jitter": 1.0})
    chosen = plan(spec, torch.arange(5000), torch.arange(1), CLOCK, height=40, width=40)
    parts = [chosen.parameters[name][0] for name in ("flip", "gray", "blur")]
    columns = [*parts, *chosen.parameters["jitter"][0].T, *chosen.box.T[:2]]
    correlations = torch.corrcoef(torch.stack([column.double() for column in columns])).fill_diagonal_(0)
    correlations[-2:, -2:] = 0  # where a crop lies: large ones are near the corner both ways
    assert correlations.abs().max() < 4.5 / 5000**0.5


def test_crops_that_never_fit_fall_back_to_the_center():
    spec = ViewSpec(scale=(1.0, 1.0), ratio=(2.0, 2.0))
    box = plan(spec, torch.arange(3), torch.arange(1), CLOCK, height=40, width=40).box
    assert box.tolist() == [[10, 0, 20, 40]] * 3


def test_views_depend_on_seed_epoch_id_and_view_only(images):
    specs = (*view_set("asymmetric", size=24, views=3), ViewSpec(size=16, count=2, **USUAL))
    augment = Augment(specs, mean=(0.5,) * 3, std=(0.25,) * 3)
    ids = torch.tensor([7, 3, 900, 12, 44, 5, 6, 1, 0, 2, 10, 11])
    alone = augment(Batch(images, ids), CLOCK)
    again = augment(Batch(images, ids), Clock(step=9, total=99, epoch=2, seed=5))
    for a, b in zip(alone, again, strict=True):
        assert torch.equal(a, b)
    some = torch.tensor([5, 2, 9])
    for whole, part in zip(alone, augment(Batch(images[some], ids[some]), CLOCK), strict=True):
        torch.testing.assert_close(
            whole[:, some], part, rtol=0, atol=1e-6
        )  # a matrix product may round apart
    for other in (
        Clock(step=0, total=10, epoch=3, seed=5),
        Clock(step=0, total=10, epoch=2, seed=6),
    ):
        assert not torch.equal(alone[0], augment(Batch(images, ids), other)[0])
    assert not torch.equal(alone[0], augment(Batch(images, ids + 1), CLOCK)[0])
    assert not torch.equal(alone[0][0], alone[0][1])


def test_view_sets_give_their_views_largest_first(images):
    augment = Augment(
        (ViewSpec(size=16, count=3, **USUAL), ViewSpec(size=24, count=2, **USUAL)),
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
    )
    views = augment(Batch(images, torch.arange(12)), CLOCK)
    assert [tuple(v.shape) for v in views] == [(2, 12, 3, 24, 24), (3, 12, 3, 16, 16)]


@pytest.mark.parametrize(("name", "counts"), [("symmetric", [5]), ("asymmetric", [3, 2]), ("weak", [5])])
def test_named_view_sets_share_out_the_views(name, counts):
    assert [spec.count for spec in view_set(name, size=32, views=5)] == counts


def test_multi_crop_scales_its_sizes_and_keeps_its_full_views():
    def of(size: int, views: int | None) -> list[tuple[int, int]]:
        return [(spec.count, spec.size) for spec in view_set("multicrop", size=size, views=views)]

    assert of(224, None) == [(2, 224), (6, 96)]
    assert of(24, None) == [(2, 24), (6, 12)]
    assert of(224, 5) == [(2, 224), (3, 96)]
    with pytest.raises(InputError, match="give at least 3"):
        of(224, 2)


def test_a_set_brings_its_own_number_of_views():
    assert [spec.count for spec in view_set("patches", size=24)] == [20]
    assert [spec.count for spec in view_set("symmetric", size=24)] == [2]


def test_view_sets_refuse_unknown_names_and_a_single_view():
    with pytest.raises(InputError, match="did you mean symmetric"):
        view_set("symetric", size=32, views=2)
    with pytest.raises(InputError, match="views = 1"):
        view_set("symmetric", size=32, views=1)


def test_a_sheet_shows_each_image_and_its_views_pixel_by_pixel():
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    views = [torch.rand(2, 3, 3, 32, 32), torch.rand(1, 3, 3, 16, 16)]
    sheet = view_sheet(images, views)
    assert sheet.shape == (3 * 66, 4 * 66, 3)
    for n in range(3):
        row = sheet[66 * n : 66 * n + 64]
        assert torch.equal(row[::2, :64:2], images[n].permute(1, 2, 0))
        expected = (views[0][1, n] * 255).round().byte().permute(1, 2, 0)
        assert torch.equal(row[::2, 132:196:2], expected)
        assert torch.equal(row[1:64:2, 133:196:2], expected)
        small = (views[1][0, n] * 255).round().byte().permute(1, 2, 0)
        assert torch.equal(row[:32:2, 198:230:2], small)
        assert (row[34:, 198:] == 255).all()


def test_a_sheet_of_gray_images_is_drawn(tmp_path):
    np.save(tmp_path / "gray.npy", np.random.default_rng(0).integers(0, 256, (5, 20, 20), dtype=np.uint8))
    frossl.views(tmp_path / "gray.npy", out=tmp_path / "a.png", images=3)
    frossl.views(tmp_path / "gray.npy", out=tmp_path / "b.png", images=3)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.height // picture.width == 1
    with pytest.raises(InputError, match="cannot write"):
        frossl.views(tmp_path / "gray.npy", out=tmp_path / "nowhere" / "a.png")
