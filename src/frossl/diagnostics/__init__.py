"""Numbers from embeddings that say, without labels, how a run goes."""

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

__all__ = [
    "alignment",
    "alpha_req",
    "dead_units",
    "effective_rank",
    "eigenvalues",
    "lidar",
    "rankme",
    "spread",
    "uniformity",
]
