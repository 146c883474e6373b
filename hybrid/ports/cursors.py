"""How far the readers of the event log have come."""

from __future__ import annotations

from typing import Protocol


class Cursors(Protocol):
    """Remembered by the name of the reader."""

    def cursor(self, reader: str) -> int | None:
        """The number of the last event that the reader is done with; None before its first."""
        ...

    def move_cursor(self, reader: str, seq: int) -> None:
        """The reader is done with everything up to ``seq``. Never backwards."""
        ...
