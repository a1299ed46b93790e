"""Prepare images for a run: pack, check, and draw views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PIL import Image
from torch import Tensor

import frossl.engine as engine
from frossl._api.common import (
    MAX_STORED_SIZE,
    data_config,
    make_console,
    open_data,
    print_lines,
    replace_given,
)
from frossl.augment import Augment, OwnViews, Transform, view_sheet
from frossl.config import Config, Data, Objective
from frossl.data import DataReport, Dataset, check_dataset, spread
from frossl.data import pack as pack_images
from frossl.errors import InputError
from frossl.live import ProgressBar
from frossl.methods.own import is_own
from frossl.recipes import recipe
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
    """Decode images once, to raw pixels of one size in a folder that `pretrain` accepts as data.

    A call that was interrupted continues where it stopped; a complete folder is verified. Files that cannot
    be read are left out and listed in `bad_files.txt`.

    Args:
        data: Folder of images, list of paths, archive, array, or name of a data set.
        out: Folder to write.
        size: Pixels along each side; the typical size of the images, up to 256, if None.
        root: Folder of a data set that is given by its name.
        fraction: Share of the images of every class to pack.
        max_bad: Share of files that may be unreadable.
        quiet: Print nothing.

    Returns:
        The folder written.

    Raises:
        InputError: If `data` cannot be opened, `size` differs from that of an array, or `out` is in use.
    """
    console = make_console(quiet)
    config = Config(data=data_config(Data(size=size), data, root=root, fraction=fraction, max_bad=max_bad))
    dataset = open_data(config, console)
    if size not in (None, dataset.size):
        raise InputError(
            f"{data} holds pixels of {dataset.size} px, which are packed as they are; leave out --size"
        )
    with ProgressBar(console, f"packing {data} at {dataset.size} px") as bar:
        pack_images(dataset, Path(out), progress=bar.update)
    splits = [dataset.train, *([dataset.test] if dataset.test is not None else [])]
    bad, file = [split.source.bad_files() for split in splits], Path(out) / "bad_files.txt"
    if any(bad):
        file.write_text(bad_file_lines(bad), encoding="utf-8")
        print_lines(console, f"{sum(map(len, bad))} files could not be read and are left out: {file}")
    return Path(out)


def check(
    data: str | Path,
    *,
    root: str | Path | None = None,
    quiet: bool = False,
) -> DataReport:
    """Check a data set before a long run: decode every image and find exact copies.

    Nothing is written. Images that are in both the training and the test split are reported, because they
    inflate test accuracy.

    Args:
        data: Folder of images, list of paths, archive, array, or name of a data set.
        root: Folder of a data set that is given by its name.
        quiet: Print nothing.

    Returns:
        Counts, unreadable files with the reason, and copies.
    """
    console = make_console(quiet)
    dataset = open_data(Config(data=data_config(Data(max_bad=1.0), data, root=root)), console)
    with ProgressBar(console, f"checking {data}") as bar:
        return check_dataset(dataset, progress=bar.update)


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
    """Draw some images, each with its views of the first epoch, as the networks would see them.

    Args:
        data: Folder of images, list of paths, archive, array, or name of a data set.
        out: Image file to write.
        config: Configuration to take views from; the recipe `default` if None.
        view_set: Name of a view set, in place of that of the configuration.
        views: Number of views of each image, at least 2.
        images: Number of images.
        seed: Seed of the views.
        root: Folder of a data set that is given by its name.

    Returns:
        The file written.

    Raises:
        InputError: If the file cannot be written or an argument is out of range.
    """
    if images < 1:
        raise InputError(f"images = {images}; give at least 1")
    config = config or recipe("default")
    train = replace_given(config.train, seed=seed)
    config = replace(config, data=data_config(config.data, data, root=root), train=train)
    if view_set is not None:
        config = replace(config, view_set=view_set, views=())
    largest = MAX_STORED_SIZE[config.train.device or engine.best_device()]
    dataset = open_data(config, make_console(quiet=True), largest=largest)
    if is_own(config.objective.method):  # its code is not needed to draw views
        config = replace(config, objective=Objective())
    config = engine.settle(config, dataset, views=views)
    path = Path(out)
    try:
        draw_views(config, dataset, path, images=images)
    except (OSError, ValueError) as error:  # a folder that does not exist, a suffix that Pillow does not know
        raise InputError(f"cannot write {out} ({error}); give a .png file in a folder that exists") from None
    return path


def draw_views(
    config: Config, dataset: Dataset, path: Path, *, images: int = 8, transform: Transform | None = None
) -> None:
    """Write an image of some training images with their views of the first epoch.

    Args:
        config: Settled configuration, whose views and seed are used.
        dataset: Data set to take images from, spread evenly over it.
        path: Image file to write.
        images: Number of images.
        transform: Function that makes the views in place of `config.views`.
    """
    source = dataset.train.source
    chosen = spread(len(source), images)
    batch = source.read(chosen, whole=engine.crops_whole_images(config, source))
    clock, channels = Clock(step=0, total=1, epoch=0, seed=config.train.seed), batch.images.shape[1]
    if transform is None:
        drawn = Augment(config.views, mean=(0.0,) * channels, std=(1.0,) * channels)(batch, clock)
    else:
        own = OwnViews(transform, views=sum(spec.count for spec in config.views))
        drawn = [_stretch_range(views) for views in own(batch, clock)]
    Image.fromarray(view_sheet(batch.unpadded(), drawn).numpy()).save(path)


def _stretch_range(views: Tensor) -> Tensor:
    """Scale views of any range linearly to [0, 1], each image by its own minimum and maximum."""
    low, high = views.amin((2, 3, 4), keepdim=True), views.amax((2, 3, 4), keepdim=True)
    return (views - low) / (high - low).clamp_min(1e-6)
