"""Time that passes when told to."""

from __future__ import annotations


class SimClock:
    """A clock whose hands are moved by :meth:`advance` only."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        """Seconds since the Unix epoch, in the simulation."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not run backwards here")
        self._now += seconds
