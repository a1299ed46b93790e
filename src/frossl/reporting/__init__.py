"""Reads run folders, writes pictures, tables and pages. No torch."""

from frossl.reporting.compare import Arm, Comparison, Pair, compare_runs
from frossl.reporting.pictures import draw_comparison, draw_spectra
from frossl.reporting.report import write_report
from frossl.reporting.sample import Sample
from frossl.reporting.trajectory import Trajectory, trajectory

__all__ = [
    "Arm",
    "Comparison",
    "Pair",
    "Sample",
    "Trajectory",
    "compare_runs",
    "draw_comparison",
    "draw_spectra",
    "trajectory",
    "write_report",
]
