"""How numbers, instants and names read in tables."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

_CENT = Decimal("0.01")
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def plain(text: str) -> str:
    """Text of others without what a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "·" for c in text)


def dollars(usd: Decimal | None) -> str:
    """Money to the cent; what is less than a cent and not nothing says so."""
    if usd is None:
        return "–"
    rounded = abs(usd).quantize(_CENT, ROUND_HALF_EVEN)
    sign = "-" if usd < 0 else ""
    if usd and not rounded:
        return f"{sign}<$0.01"
    return f"{sign}${rounded:,}"


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    if seconds < 0:
        return "-" + span(-seconds)
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    for size, unit, below, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{small}"
    return f"{whole // 60}m{whole % 60:02d}s"


def since(start: datetime | None, end: datetime | None) -> str:
    """The time between two instants; a dash while one is missing."""
    if start is None or end is None:
        return "–"
    return span(max(0.0, (end - start).total_seconds()))


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """An instant as seen from now."""
    if at is None:
        return "–"
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def clock(at: datetime | None) -> str:
    """An instant as the time of day here, with the date when it is another day."""
    if at is None:
        return "–"
    local = at.astimezone()
    same_day = local.date() == datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")


def size(count: float) -> str:
    """Bytes with their unit."""
    for unit in _SIZES[:-1]:
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_SIZES[-1]}"


def plural(count: int, thing: str) -> str:
    """A count and its noun."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
