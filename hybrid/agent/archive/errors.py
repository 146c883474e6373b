"""Why a folder cannot travel."""

from __future__ import annotations

from collections.abc import Sequence


class ArchiveError(Exception):
    """Base of all errors of this package."""


class ArchiveTooLarge(ArchiveError):
    """More than an archive may hold: ``found`` is where counting stopped or ended, ``unit`` says
    of what (``bytes`` or ``entries``), ``biggest`` lists the largest entries with their bytes."""

    def __init__(
        self, limit: int, found: int, biggest: Sequence[tuple[str, int]], unit: str = "bytes"
    ) -> None:
        self.limit, self.found, self.unit = limit, found, unit
        self.biggest = tuple(biggest)
        words = f"{found} {unit} where {limit} are allowed"
        if biggest:
            names = ", ".join(f"{path} ({size})" for path, size in biggest)
            words += f"; the largest: {names}. What need not travel belongs in .hybridignore"
        super().__init__(words)


class UnsafeArchiveEntry(ArchiveError):
    """An entry that must not be packed or unpacked; nothing was."""

    def __init__(self, entry: str, why: str) -> None:
        self.entry, self.why = entry, why
        super().__init__(f"{entry}: {why}")


class BrokenArchive(ArchiveError):
    """Not an archive of ours, or damaged on the way; nothing was unpacked."""
