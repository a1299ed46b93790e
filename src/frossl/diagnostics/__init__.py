"""Diagnostics: label-free metrics of embeddings, and a verdict on the run from them."""

from frossl.diagnostics.diagnosis import diagnose, log_spaced
from frossl.diagnostics.spectrum import (
    alignment,
    alpha_req,
    dead_units,
    effective_rank,
    eigenvalues,
    lidar,
    rankme,
    spread,
    uniformity,
)
from frossl.diagnostics.verdict import LOWER_RATE, NOT_WATCHED, Verdict, judge

__all__ = [
    "LOWER_RATE",
    "NOT_WATCHED",
    "Verdict",
    "alignment",
    "alpha_req",
    "dead_units",
    "diagnose",
    "effective_rank",
    "eigenvalues",
    "judge",
    "lidar",
    "log_spaced",
    "rankme",
    "spread",
    "uniformity",
]
