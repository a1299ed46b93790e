"""What a person sees while a run lives. No torch."""

from frossl.live.progress import Bar, Counting, Patient, PlainLines

__all__ = ["Bar", "Counting", "Patient", "PlainLines"]
