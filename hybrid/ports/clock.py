"""Time, as the loop and its ports are given it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Where the loop gets the time from: the system, or a simulation."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...
