"""Named time zones, for calendar rules. The zone database is constant data, read once."""

from __future__ import annotations

from zoneinfo import ZoneInfo


def zone(name: str) -> ZoneInfo:
    """The zone called ``name``; raises ``ValueError`` with an example for any other text."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{name!r} is not a time zone; write a name such as UTC or Europe/Berlin"
        ) from error
