"""Write the features of images to a file, and find near-duplicates and outliers among them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import frossl.engine as engine
from frossl._api.common import data_config, make_console, open_data, print_lines
from frossl.config import Config, Data, Device
from frossl.errors import InputError
from frossl.exporting import load_encoder
from frossl.features.blocks import Block, BlockComputer, BlockResult, Images, Job, fingerprint
from frossl.features.formats import write_names, writer_for
from frossl.features.neighbors import check_search
from frossl.features.outputs import iterate_rows, write_neighbors
from frossl.features.store import FeatureStore, StoreHeader
from frossl.features.workers import compute_blocks
from frossl.live import ProgressBar
from frossl.machine import cores
from frossl.runs import RunFolder


@dataclass(frozen=True)
class EmbedResult:
    """Result of `embed`."""

    path: Path
    """File of features."""
    images: int
    """Number of images, which is the number of rows."""
    features: int
    """Number of features of each image."""
    seconds: float
    """Duration of this call in seconds."""
    rate: float
    """Throughput in images per second while features were computed."""
    kept: int
    """Number of images whose features came from an earlier, interrupted call."""
    unreadable: dict[str, str]
    """Files and folders that could not be read, with the reason. A file keeps its row, without features."""
    beside: dict[str, Path]
    """Other files written, by kind: `names`, `duplicates`, `outliers`."""
    pairs: int | None = None
    """Number of pairs of near-duplicates; None if they were not searched for."""
    groups: int | None = None
    """Number of groups that these pairs form."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as values that JSON can hold, and the size of the file as `bytes`."""
        return {
            **vars(self),
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "seconds": round(self.seconds, 2),
            "rate": round(self.rate, 1),
            "beside": {kind: str(path) for kind, path in self.beside.items()},
        }


def embed(
    run: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path,
    root: str | Path | None = None,
    batch_size: int | None = None,
    processes: int = 1,
    duplicates: float | None = None,
    outliers: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> EmbedResult:
    """Compute the features of every image, and write them with the names of the images to a file.

    An interrupted call, even a killed one, continues when it is repeated, and writes the same bytes.

    Args:
        run: Run folder, or an exported encoder.
        data: Folder of images, list of paths, archive, array, or name of a data set; all its splits are
            embedded. None is the data of the run, without images that were given as `test`.
        out: File to write: `.parquet` (name, label, features), `.csv` (name, label, f0, f1, …), or `.npy`
            with the names next to it in `.names.jsonl`.
        root: Folder of a data set that is given by its name.
        batch_size: Images per forward pass; chosen by their size if None.
        processes: Number of processes. Several use one thread each, a single one as many as torch has.
        duplicates: List pairs of images whose cosine similarity is at least this in `.duplicates.csv`.
        outliers: List this number of images, those farthest from their nearest neighbours, in
            `.outliers.csv`.
        overwrite: Replace existing files.
        quiet: Print nothing.

    Returns:
        The files written, throughput, and unreadable images.

    Raises:
        InputError: If a file exists, the images do not fit the encoder, or a number is out of range.
    """
    began, path, console = time.monotonic(), Path(os.path.expanduser(out)), make_console(quiet)
    run = os.path.expanduser(run)
    write = writer_for(path)
    _check_numbers(batch_size=batch_size, processes=processes, outliers=outliers)
    if duplicates is not None and not 0 < duplicates <= 1:
        raise InputError(f"duplicates = {duplicates:g}; give a cosine above 0 and up to 1")
    side_files = _side_files(path, duplicates is not None, outliers is not None)
    _check_free([path, *side_files.values()], overwrite=overwrite or FeatureStore.exists(path))
    encoder = load_encoder(run)
    chosen = _data_to_embed(run, data, root, _stored_size(run) or encoder.size)
    images = Images(open_data(Config(data=chosen), console, keep=False))
    images.check_channels(encoder)
    if duplicates is not None or outliers is not None:
        check_search(len(images))
    unlisted, device = images.bad_files(), engine.best_device()
    batch_size = batch_size or _batch_size(encoder.size, device)
    header = StoreHeader(
        images.digest, fingerprint(encoder), len(images), encoder.num_features, batch_size, device
    )
    with FeatureStore.open(path, header, overwrite=overwrite) as store:
        workers = max(1, cores().workers // processes) if processes > 1 else chosen.workers
        job = Job(
            encoder=str(run),
            data=replace(chosen, workers=workers),
            images=header.images,
            weights=header.weights,
            features=str(store.features),
            device=device,
            batch_size=batch_size,
        )
        computer, blocks = BlockComputer(job, images, encoder, device=device), images.blocks(batch_size)
        done, reused, rate = _compute_features(computer, store, blocks, processes, console)
        bad = {int(row): why for one in done.values() for row, why in one.unreadable.items()}
        counts: dict[str, int] = {}
        if duplicates is not None or outliers is not None:
            with ProgressBar(console, "comparing images") as bar:
                counts = write_neighbors(
                    store,
                    images,
                    bad,
                    side_files,
                    duplicates=duplicates,
                    outliers=outliers,
                    progress=bar.update,
                )
        if "names" in side_files:
            store.write_output(
                side_files["names"], lambda file: write_names(file, iterate_rows(images, store))
            )
        shape = (header.count, header.features)
        store.write_output(path, lambda file: write(file, iterate_rows(images, store), shape))
        store.remove()
    unreadable = unlisted | {images.name(row): bad[row] for row in sorted(bad)}
    seconds = time.monotonic() - began
    return EmbedResult(path, *shape, seconds, rate, reused, unreadable, side_files, **counts)


def _check_numbers(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise InputError(f"{name} = {number}; give at least 1")


def _side_files(path: Path, duplicates: bool, outliers: bool) -> dict[str, Path]:
    """Return the files to write in addition to the features, by kind."""
    wanted = {
        "names": (path.suffix.lower() == ".npy", ".names.jsonl"),
        "duplicates": (duplicates, ".duplicates.csv"),
        "outliers": (outliers, ".outliers.csv"),
    }
    return {kind: path.with_suffix(suffix) for kind, (needed, suffix) in wanted.items() if needed}


def _check_free(paths: list[Path], *, overwrite: bool) -> None:
    if not paths[0].parent.is_dir():
        raise InputError(f"there is no folder {paths[0].parent}; make it, or choose another --out")
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path} is a folder; choose another --out")
        if path.exists() and not overwrite:
            raise InputError(f"{path} is already there; choose another --out, or replace it with --overwrite")


def _data_to_embed(run: str | Path, data: str | Path | None, root: str | Path | None, size: int) -> Data:
    """Return the data to embed: the given, or all of the run's own.

    Any number of files may be unreadable, because the result lists them.
    """
    base = Data(size=size, max_bad=1.0)
    if data is not None:
        return data_config(base, data, root=root)
    if root is not None:
        raise InputError("root is the folder of other data; give its name, too")
    if not Path(run).is_dir():
        raise InputError(f"{run} is no run and has no images of its own; name some after it")
    own = Config.read(RunFolder.open(run).config_file).data
    return replace(base, source=own.source, root=own.root, labels=own.labels, workers=own.workers)


def _stored_size(run: str | Path) -> int | None:
    """Return the size at which a run stores images, so that features are those of evaluations."""
    file = RunFolder(Path(run)).config_file
    return Config.read(file).data.size if file.is_file() else None


def _batch_size(size: int, device: Device) -> int:
    """Return a default batch size: 256, or on a CPU as many images as its caches hold."""
    return 256 if device != "cpu" else max(8, min(64, 64 * 64**2 // size**2))


def _compute_features(
    computer: BlockComputer, store: FeatureStore, blocks: list[Block], processes: int, console: Console
) -> tuple[dict[int, BlockResult], int, float]:
    """Compute the blocks that are missing in the store.

    Returns:
        All blocks by number, the number of images that the store already held, and images per second.
    """
    done, total = store.done(blocks), len(computer.images)
    missing = [block for block in blocks if block.number not in done]
    reused = total - sum(block.count for block in missing)
    if reused:
        print_lines(console, f"{reused:,} of {total:,} images were already embedded by an interrupted call")
    began, finished = time.monotonic(), reused
    with ProgressBar(console, f"embedding {computer.job.data.source}") as bar:
        bar.update(finished, total)

        def save(result: BlockResult) -> None:
            nonlocal finished
            store.record(result)
            done[result.block] = result
            finished += blocks[result.block].count
            bar.update(finished, total)

        compute_blocks(computer, missing, processes=processes, done=save)
    return done, reused, (total - reused) / max(1e-9, time.monotonic() - began)
