"""Report on runs: pages, spectra, comparisons, and a list of run folders."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from frossl.config import Config
from frossl.errors import FrosslError, InputError
from frossl.reporting import (
    RunComparison,
    Trajectory,
    compare_runs,
    draw_comparison,
    draw_spectra,
    trajectory,
    write_report,
)
from frossl.reporting.trajectory import Kind
from frossl.runs import RunFolder, is_run
from frossl.runs.records import newest_evaluations


def spectrum(
    runs: Sequence[str | Path],
    *,
    out: str | Path | None = "spectrum.png",
    of: Kind = "z",
    relative: bool = False,
) -> list[Trajectory]:
    """Return the largest eigenvalues of the covariance of each run over its steps, and draw them.

    The picture is the figure of the FroSSL paper.

    Args:
        runs: Run folders.
        out: Picture to write, as PNG and as SVG; None draws nothing.
        of: `z` for projections or `features` for features.
        relative: Divide eigenvalues by their sum, because many objectives are invariant to scale.

    Returns:
        Eigenvalues of each run.

    Raises:
        InputError: If a run has no records of its spectra, or the picture cannot be written.
    """
    trajectories = [trajectory(run, of, relative=relative) for run in runs]
    if out is not None:
        draw_spectra(trajectories, Path(out), what="share of the sum" if relative else "eigenvalue")
    return trajectories


def compare(
    runs: Sequence[str | Path], *, target: float | None = None, out: str | Path | None = None
) -> RunComparison:
    """Compare runs by accuracy with its error, epochs and minutes to a target, step time and memory.

    Runs that differ in their seed only are averaged, and their spread enters the error.

    Args:
        runs: Run folders.
        target: Online accuracy in percent; nine tenths of the lowest final one if None.
        out: Picture to write, as PNG and as SVG; None draws nothing.

    Returns:
        The runs, best first, and the differences between them with errors.

    Raises:
        InputError: If runs cannot be compared, or the picture cannot be written.
    """
    comparison = compare_runs(runs, target=target)
    if out is not None:
        draw_comparison(comparison, Path(out))
    return comparison


def report(runs: str | Path | Sequence[str | Path], *, out: str | Path | None = None) -> Path:
    """Write a self-contained HTML page about a run, or one that compares several.

    If a run has an encoder but no sample of embeddings yet, and its images are still available, the sample is
    taken first.

    Args:
        runs: Run folder, or several.
        out: File to write. If None, `report.html` in the folder of a single run, or `comparison.html` in the
            working directory for several.

    Returns:
        The file written.

    Raises:
        InputError: If a run is given twice, or the file cannot be written.
    """
    folders = [RunFolder.open(run) for run in ([runs] if isinstance(runs, (str, Path)) else runs)]
    for folder in folders:
        if folder.encoder.is_file() and not folder.sample.is_file():
            _take_sample(folder)
    path = Path(out) if out is not None else Path("comparison.html")
    if out is None and len(folders) == 1:
        path = folders[0].report
    return write_report([folder.path for folder in folders], path)


def _take_sample(folder: RunFolder) -> None:
    # imported here because they import torch, which the rest of this module does not need
    from frossl._api.common import check_same_images, make_console, open_data
    from frossl._api.finish import take_sample
    from frossl.exporting import load_encoder

    config = Config.read(folder.config_file)
    with contextlib.suppress(FrosslError):  # the page says that there is no sample
        data = open_data(config, make_console(quiet=True))
        check_same_images(config, folder, data)
        take_sample(folder, config, data, load_encoder(folder.path))


def list_runs(under: str | Path = "runs") -> dict[str, str]:
    """Return the run folders below a folder with a short status of each, newest first.

    Args:
        under: Folder to search, with all its subfolders.

    Returns:
        Status by path, such as `finished, step 1716 of 1716, learning, kNN, k 20 48.4`.

    Raises:
        InputError: If there is no such folder.
    """
    if not Path(under).is_dir():
        raise InputError(f"there is no folder {under}; give the one that holds your runs (--under)")
    files = [file for file in Path(under).rglob("config.toml") if is_run(file.parent)]
    files.sort(key=lambda file: -file.stat().st_mtime)
    return {str(file.parent): _describe_status(RunFolder(file.parent)) for file in files}


def _describe_status(folder: RunFolder) -> str:
    """Return state, step, verdict and latest accuracy of a run in one line."""
    try:
        status = folder.read_status()
        words = [f"{status.state}, step {status.step} of {status.total}"]
        words += [status.verdict["kind"]] if "kind" in status.verdict else []
        measured = [record for record in folder.evaluation if "trained" in record.percent]
        words += [f"{e.protocol} {e.percent['trained']:.1f}" for e in newest_evaluations(measured)[-1:]]
    except FrosslError as error:
        return f"damaged ({error})"
    return ", ".join(words)
