"""Comparisons, figures and HTML reports from run folders. No torch."""

from frossl.reporting.compare import Arm, Pair, RunComparison, compare_runs
from frossl.reporting.plots import draw_comparison, draw_spectra
from frossl.reporting.report import write_report
from frossl.reporting.sample import Sample
from frossl.reporting.trajectory import Trajectory, trajectory

__all__ = [
    "Arm",
    "Pair",
    "RunComparison",
    "Sample",
    "Trajectory",
    "compare_runs",
    "draw_comparison",
    "draw_spectra",
    "trajectory",
    "write_report",
]
