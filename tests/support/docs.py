"""Code blocks of the documentation."""

import re

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A fenced block: its language and its text."""
