"""One figure of ours beside the published one, as a row of ``benchmarks/results.md``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compared:
    """``published`` and ``ours`` in the same unit; ``wanted`` says what ours must reach and
    ``reached`` whether it does (None: nothing is asked of this row)."""

    what: str
    published: str
    ours: str
    wanted: str = ""
    reached: bool | None = None
