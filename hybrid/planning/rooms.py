"""Room on one device that jobs share: which parts of it are held, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SLACK = 1e-9
"""Of parts of a device: what rounding may take from a sum of them."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A part of a device that a run has, or that is reserved, from ``start`` until ``end``, whose
    variance is given."""

    start: float
    end: float
    share: float
    variance: float = 0.0


def least_free(holds: Sequence[Hold], start: float, end: float) -> float:
    """The least part of the device that is free at once between two instants."""
    # what is held only grows where a hold begins
    peaks = (start, *(hold.start for hold in holds if start < hold.start < end))
    return 1.0 - max(sum(h.share for h in holds if h.start <= at < h.end) for at in peaks)


def first_room(holds: Sequence[Hold], share: float, after: float) -> float:
    """The first instant from another on at which such a part is free, be it for how long."""
    ends = sorted(hold.end for hold in holds if hold.end > after)
    instants = (after, *ends)
    return next(at for at in instants if least_free(holds, at, at) + SLACK >= share)


def next_change(holds: Sequence[Hold], after: float) -> float | None:
    """The first instant after another at which a hold begins or ends."""
    instants = (at for hold in holds for at in (hold.start, hold.end) if at > after)
    return min(instants, default=None)


def ending(holds: Sequence[Hold], at: float) -> Hold | None:
    """The hold that ends at an instant; of several the least certain."""
    there = (hold for hold in holds if hold.end == at)
    return max(there, key=lambda hold: hold.variance, default=None)


def uncovered(holds: Sequence[Hold], start: float, end: float) -> Iterator[tuple[float, float]]:
    """The times between two instants at which nobody has a share of the device."""
    for hold in sorted(holds, key=lambda hold: hold.start):
        if start < min(hold.start, end):
            yield start, min(hold.start, end)
        start = max(start, hold.end)
    if start < end:
        yield start, end
