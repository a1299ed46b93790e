"""What a person sees while a run lives. No torch."""

from frossl.live.dashboard import Dashboard, Frame
from frossl.live.following import screen, watch
from frossl.live.progress import Counting, Patient, PlainLines
from frossl.live.story import Story

__all__ = ["Counting", "Dashboard", "Frame", "Patient", "PlainLines", "Story", "screen", "watch"]
