"""What runs say: pages about them, spectra, a comparison, a list of those that there are."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from frossl.config import Config
from frossl.errors import FrosslError, InputError
from frossl.reporting import (
    Comparison,
    Trajectory,
    compare_runs,
    draw_comparison,
    draw_spectra,
    trajectory,
    write_report,
)
from frossl.reporting.trajectory import Kind
from frossl.runs import RunFolder, is_run


def spectrum(
    runs: Sequence[str | Path],
    *,
    out: str | Path | None = "spectrum.png",
    of: Kind = "z",
    relative: bool = False,
) -> list[Trajectory]:
    """How the largest eigenvalues of the covariance went in each run: the paper's figure.

    out: a picture, as PNG and SVG; None draws none. of: projections (`z`) or `features`. relative: shares of
    their sum, as many objectives do not see the scale.
    """
    trajectories = [trajectory(run, of, relative=relative) for run in runs]
    if out is not None:
        draw_spectra(trajectories, Path(out), what="share of the sum" if relative else "eigenvalue")
    return trajectories


def compare(
    runs: Sequence[str | Path], *, target: float | None = None, out: str | Path | None = None
) -> Comparison:
    """Runs beside each other: accuracy with its error, epochs and minutes to a target, step time, memory.

    Runs that differ by their seed alone count as one, with the spread between them. target: percent of online
    accuracy; nine tenths of the lowest final one, if not given. out: a picture, as PNG and SVG.
    """
    comparison = compare_runs(runs, target=target)
    if out is not None:
        draw_comparison(comparison, Path(out))
    return comparison


def report(runs: str | Path | Sequence[str | Path], *, out: str | Path | None = None) -> Path:
    """One page about a run, or about several beside each other. It holds all that it shows.

    out: report.html in the run's folder, or comparison.html here, if not given. Where a run has an encoder
    but no sample of embeddings yet, one is taken, if its images are still there.
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
    from frossl.api.closing import take_sample  # torch, which the rest does without
    from frossl.api.shared import check_same, console_of, opened
    from frossl.artifacts import load_encoder

    config = Config.read(folder.config_file)
    with contextlib.suppress(FrosslError):  # then the page says that there is none
        data = opened(config, console_of(quiet=True))
        check_same(config, folder, data)
        take_sample(folder, config, data, load_encoder(folder.path))


def runs(under: str | Path = "runs") -> dict[str, str]:
    """The run folders below a folder, newest first, each with how it stands."""
    if not Path(under).is_dir():
        raise InputError(f"there is no folder {under}; give the one that holds your runs (--under)")
    files = [file for file in Path(under).rglob("config.toml") if is_run(file.parent)]
    files.sort(key=lambda file: -file.stat().st_mtime)
    return {str(file.parent): _standing(RunFolder(file.parent)) for file in files}


def _standing(folder: RunFolder) -> str:
    """`finished, step 1716 of 1716, learning, kNN, k 20 48.4`"""
    try:
        status = folder.read_status()
        known = [f"{status['state']}, step {status['step']} of {status['total']}"]
        known += [status["verdict"]["kind"]] if status.get("verdict") else []
        known += [f"{e['protocol']} {e['percent']['trained']:.1f}" for e in [*folder.evaluation][-1:]]
    except (FrosslError, KeyError, ValueError) as error:
        return f"damaged ({error})"
    return ", ".join(known)
