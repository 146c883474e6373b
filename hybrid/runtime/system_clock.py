"""The system's clock."""

from __future__ import annotations

import time


class SystemClock:
    """Wall-clock time. Steps back are held: time as the loop sees it never decreases."""

    def __init__(self) -> None:
        self._last = 0.0

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        self._last = max(self._last, time.time())
        return self._last
