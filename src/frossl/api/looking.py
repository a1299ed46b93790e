"""Images before a run: pack them, look through them, draw their views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PIL import Image
from torch import Tensor

import frossl.engine as engine
from frossl.api.catalog import recipe
from frossl.api.shared import LARGEST_STORED, console_of, data_of, given, opened, say
from frossl.augment import Augment, OwnViews, Transform, view_sheet
from frossl.config import Config, Data
from frossl.data import Dataset, Findings, look_through, spread
from frossl.data import pack as pack_images
from frossl.errors import InputError
from frossl.live import Counting
from frossl.runs import bad_file_lines
from frossl.types import Clock


def pack(
    data: str | Path,
    *,
    out: str | Path,
    size: int | None = None,
    root: str | Path | None = None,
    fraction: float | None = None,
    max_bad: float | None = None,
    quiet: bool = False,
) -> Path:
    """Decode images once, to raw pixels of one size in a folder that `pretrain` takes as data.

    size: pixels along each side; the typical size of the images up to 256, if not given. What was begun goes
    on where it stood; what is complete is checked.
    """
    console = console_of(quiet)
    config = Config(data=data_of(Data(size=size), data, root=root, fraction=fraction, max_bad=max_bad))
    dataset = opened(config, console)
    if size not in (None, dataset.size):
        raise InputError(
            f"{data} holds pixels of {dataset.size} px, which are packed as they are; leave out --size"
        )
    with Counting(console, f"packing {data} at {dataset.size} px") as counting:
        pack_images(dataset, Path(out), progress=counting.update)
    parts = [dataset.train, *([dataset.test] if dataset.test is not None else [])]
    bad, file = [part.source.bad_files() for part in parts], Path(out) / "bad_files.txt"
    if any(bad):
        file.write_text(bad_file_lines(bad), encoding="utf-8")
        say(console, f"{sum(map(len, bad))} files could not be read and are left out: {file}")
    return Path(out)


def check(
    data: str | Path,
    *,
    root: str | Path | None = None,
    quiet: bool = False,
) -> Findings:
    """Look through data before a long run: decode every image, and find those that are there twice.

    Nothing is written. Images that are both learned from and tested on are named: they flatter a figure.
    """
    console = console_of(quiet)
    dataset = opened(Config(data=data_of(Data(max_bad=1.0), data, root=root)), console)
    with Counting(console, f"looking through {data}") as counting:
        return look_through(dataset, progress=counting.update)


def views(
    data: str | Path,
    *,
    out: str | Path = "views.png",
    config: Config | None = None,
    view_set: str | None = None,
    views: int | None = None,
    images: int = 8,
    seed: int | None = None,
    root: str | Path | None = None,
) -> Path:
    """Draw what the networks would see: some images, each with its views of the first epoch beside it."""
    if images < 1:
        raise InputError(f"images = {images}; give at least 1")
    config = config or recipe("default")
    train = given(config.train, seed=seed)
    config = replace(config, data=data_of(config.data, data, root=root), train=train)
    if view_set is not None:
        config = replace(config, view_set=view_set, views=())
    largest = LARGEST_STORED[config.train.device or engine.best_device()]
    dataset = opened(config, console_of(quiet=True), largest=largest)
    config = engine.settle(config, dataset, views=views)
    path = Path(out)
    try:
        draw_views(config, dataset, path, images=images)
    except (OSError, ValueError) as error:  # a folder that is not there, an ending that Pillow does not know
        raise InputError(
            f"cannot write {out} ({error}); give a .png file in a folder that is there"
        ) from None
    return path


def draw_views(
    config: Config, dataset: Dataset, path: Path, *, images: int = 8, transform: Transform | None = None
) -> None:
    source = dataset.train.source
    chosen = spread(len(source), images)
    batch = source.read(chosen)
    clock, channels = Clock(step=0, total=1, epoch=0, seed=config.train.seed), batch.images.shape[1]
    if transform is None:
        made = Augment(config.views, mean=(0.0,) * channels, std=(1.0,) * channels)(batch, clock)
    else:
        own = OwnViews(transform, views=sum(spec.count for spec in config.views))
        made = [_stretched(views) for views in own(batch, clock)]
    Image.fromarray(view_sheet(batch.images, made).numpy()).save(path)


def _stretched(views: Tensor) -> Tensor:
    """Views on whatever scale, each from its darkest to its brightest."""
    low, high = views.amin((2, 3, 4), keepdim=True), views.amax((2, 3, 4), keepdim=True)
    return (views - low) / (high - low).clamp_min(1e-6)
