"""Helpers that several test modules share; fixtures are in conftest.py."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Root folder of the repository."""
