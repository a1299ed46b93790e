"""Reads run folders, writes pictures and tables. No torch."""

from frossl.reporting.compare import Arm, Comparison, Pair, compare_runs
from frossl.reporting.pictures import draw_comparison, draw_spectra
from frossl.reporting.trajectory import Trajectory, trajectory

__all__ = [
    "Arm",
    "Comparison",
    "Pair",
    "Trajectory",
    "compare_runs",
    "draw_comparison",
    "draw_spectra",
    "trajectory",
]
