"""What a person sees while a run lives. No torch."""

from frossl.live.progress import Bar, PlainLines

__all__ = ["Bar", "PlainLines"]
