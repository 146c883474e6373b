"""What availability that was seen comes to: experience of offers, and a belief for one of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hybrid.domain.sightings import Sightings
from hybrid.estimation.availability import (
    NO_COUNTS,
    AvailabilityChain,
    Belief,
    Seen,
    SpellCounts,
    believe,
    count,
    learn,
    memoryless,
    ticks_of,
)

ENOUGH_TICKS = 144
"""Watched ticks from which on a learned chain stands beside the stated rate: a day of ten-minute
ticks."""

RETURNS_PER_HOUR = 1.0
"""How often an hour spot that is refused comes back, until that has been seen."""

LEAST_LOSSES_PER_HOUR = 1e-3
"""A spot machine of which nobody has told an interruption may be taken all the same."""

_DIGITS = 2
"""Digits of a learned hazard: a chain that differs in no digit is not solved again."""


def experience(seen: Iterable[Sightings], *, now: float, tick_s: float) -> SpellCounts:
    """All that was watched of these offers, in ticks."""
    total = NO_COUNTS
    for sightings in seen:
        for ticks in pasts(sightings, now=now, tick_s=tick_s):
            total = total + count(np.array([ticks], dtype=bool))
    return total


def pasts(sightings: Sightings, *, now: float, tick_s: float) -> list[tuple[bool, ...]]:
    """Each time without a gap in which the offer was watched, as ticks."""
    return [
        ticks_of(spell.changes, until=spell.until, tick_s=tick_s) for spell in sightings.spells(now)
    ]


def belief(
    own: Sightings | None, counts: SpellCounts, *, losses_per_hour: float, now: float, tick_s: float
) -> Belief:
    """What to expect of an offer: its stated rate alone, or beside what was learned of all offers
    (``counts``) once that is enough, each weighed by how it explains the offer's own last watch."""
    rate = memoryless(
        losses_per_hour=max(losses_per_hour, LEAST_LOSSES_PER_HOUR),
        returns_per_hour=RETURNS_PER_HOUR,
        tick_s=tick_s,
    )
    if sum(counts.ticks) < ENOUGH_TICKS:
        return believe([rate], ())
    watched = [] if own is None else pasts(own, now=now, tick_s=tick_s)
    return believe([rate, _rounded(learn(counts, tick_s))], watched[-1] if watched else ())


def seen_now(own: Sightings | None, *, refused: bool, now: float) -> Seen:
    """How an offer's availability stands: down while its provider's refusal stands, else up. Where
    nobody looks it is as fresh as can be: asking is how to find out, and costs nothing."""
    up = not refused
    if own is None or own.last[1] is not up:
        return Seen(up=up, age_s=0.0)
    began = own.last[0]
    earlier = own.changes[-2] if len(own.changes) > 1 else None
    previous_s = None if earlier is None or earlier[1] is None else began - earlier[0]
    return Seen(up=up, age_s=now - began, previous_s=previous_s)


def _rounded(chain: AvailabilityChain) -> AvailabilityChain:
    hazards = (float(f"{hazard:.{_DIGITS}g}") for hazard in chain.hazards)
    return AvailabilityChain(chain.tick_s, tuple(min(max(h, 1e-6), 0.99) for h in hazards))
