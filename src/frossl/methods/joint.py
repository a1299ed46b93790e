"""Deprecated since 0.2.0: `JointEmbedding` is now `frossl.methods.Method`."""

import warnings

from frossl.methods.base import Method as JointEmbedding

__all__ = ["JointEmbedding"]

warnings.warn("frossl.methods.joint is now frossl.methods.base", DeprecationWarning, stacklevel=2)
