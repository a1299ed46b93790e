"""Terminal display of a running or finished run: dashboard, plain lines, progress bars. No torch."""

from frossl.live.dashboard import Dashboard, Frame
from frossl.live.follow import screen, watch
from frossl.live.progress import NonBlockingConsole, PlainLines, ProgressBar
from frossl.live.run_view import RunView

__all__ = [
    "Dashboard",
    "Frame",
    "NonBlockingConsole",
    "PlainLines",
    "ProgressBar",
    "RunView",
    "screen",
    "watch",
]
