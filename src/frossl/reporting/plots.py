"""Matplotlib figures of run folders, written as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frossl.errors import InputError
from frossl.reporting.compare import RunComparison
from frossl.reporting.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")


def draw_spectra(trajectories: Sequence[Trajectory], path: Path, *, what: str = "eigenvalue") -> list[Path]:
    """Draw the paper's figure: the largest eigenvalues of each run over its steps, saturation marked.

    Each run has a panel; both axes are logarithmic.

    Args:
        trajectories: Eigenvalues of each run.
        path: File to write; the PNG and the SVG differ in their suffix only.
        what: Label of the y axis.

    Returns:
        The two files.
    """
    columns = min(3, len(trajectories))
    rows = -(-len(trajectories) // columns)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(
            rows, columns, squeeze=False
        ).flatten()  # no shared axes: ranges differ a thousandfold
        for panel in panels[len(trajectories) :]:
            panel.axis("off")
        for panel, one in zip(panels, trajectories, strict=False):
            _spectrum(panel, one)
            panel.set_xlabel("step")
            panel.set_ylabel(what)

    return _save(draw, path, size=(4.2 * columns, 3.4 * rows))


def _spectrum(panel: Any, one: Trajectory) -> None:
    from matplotlib import colormaps

    count = len(one.eigenvalues[0])
    colors = colormaps["viridis"]
    for i in range(count):
        values = [max(row[i], 1e-12) for row in one.eigenvalues]
        panel.plot(one.steps, values, color=colors(0.95 * i / max(1, count - 1)), linewidth=1)
    panel.set(xscale="log", yscale="log")
    saturation = one.saturation
    if saturation is not None:
        panel.axvline(saturation, color="#c0392b", linestyle="--", linewidth=1)
        note = f"saturates at step {saturation}"
    else:
        note = f"not saturated by step {one.steps[-1]}"
    panel.set_title(f"{one.name}\n{note}, λ₁/λ{_subscript(count)} = {one.condition:.3g}", fontsize=9)


def _subscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def draw_comparison(comparison: RunComparison, path: Path) -> list[Path]:
    """Draw online accuracy over epochs and over minutes, with a line for each run and a color for each arm.

    Args:
        comparison: Arms to draw.
        path: File to write; the PNG and the SVG differ in their suffix only.

    Returns:
        The two files.
    """

    def draw(figure: Figure) -> None:
        from matplotlib import colormaps

        panels = figure.subplots(1, 2, sharey=True)
        axes = (("epoch", 1.0), ("seconds", 1 / 60))
        for panel, (name, scale), label in zip(panels, axes, ("epochs", "minutes"), strict=True):
            for i, arm in enumerate(comparison.arms):
                for j, run in enumerate(arm.runs):
                    panel.plot(
                        [scale * getattr(point, name) for point in run.online],
                        [point.percent for point in run.online],
                        color=colormaps["tab10"](i % 10),
                        label=f" {arm.name}" if j == 0 else None,  # matplotlib hides labels that begin with _
                        linewidth=1.2,
                        marker=".",
                        markersize=4,
                    )
            panel.axhline(comparison.target, color="gray", linewidth=0.8, linestyle=":")
            panel.set_xlabel(label)
        panels[0].set_ylabel("online kNN, percent")
        panels[0].legend(fontsize=8, frameon=False)

    return _save(draw, path, size=(9.0, 3.8))


def _save(draw: Callable[[Figure], None], path: Path, *, size: tuple[float, float]) -> list[Path]:
    """Draw without a display, and write both formats."""
    if path.suffix.lower() not in (*SUFFIXES, ""):
        raise InputError(f"{path} is neither .png nor .svg; give one of them, the other is written beside it")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}; make it, or choose another --out")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(
        {
            "svg.hashsalt": "frossl",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "text.parse_math": False,  # a name may contain $
        }
    ):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        written = []
        for suffix in SUFFIXES:
            file = path.with_suffix(suffix)
            metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
            try:
                figure.savefig(file, dpi=120, metadata=metadata)
            except OSError as error:
                raise InputError(f"cannot write {file} ({error.strerror}); choose another --out") from None
            written.append(file)
    return written
