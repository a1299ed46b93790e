"""Checks of this machine: what is slow, missing or wrong, and how to fix it (`frossl doctor`)."""

from frossl.health.examine import doctor
from frossl.health.findings import Accelerator, DoctorReport, Finding, Hardware

__all__ = ["Accelerator", "DoctorReport", "Finding", "Hardware", "doctor"]
