"""Methods: what one step computes. A method owns its networks; an objective only sees projections."""

from __future__ import annotations

from frossl.methods.joint import JointEmbedding

METHODS: dict[str, type[JointEmbedding]] = {"frossl": JointEmbedding}

__all__ = ["METHODS", "JointEmbedding"]
