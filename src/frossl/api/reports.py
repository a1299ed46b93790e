"""What several runs say together: spectra, and a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from frossl.reporting import (
    Comparison,
    Trajectory,
    compare_runs,
    draw_comparison,
    draw_spectra,
    trajectory,
)
from frossl.reporting.trajectory import Kind


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
