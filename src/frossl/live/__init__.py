"""What a person sees while a run lives. No torch."""

from frossl.live.progress import Bar, Patient, PlainLines

__all__ = ["Bar", "Patient", "PlainLines"]
