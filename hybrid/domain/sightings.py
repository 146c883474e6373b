"""When spot machines of an offer could be had, as launches, refusals and interruptions told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from hybrid.domain.ids import OfferId

WATCHED_S = 3600.0
"""Two refusals further apart than this say nothing of the time between them: nobody looked."""

MOST_CHANGES = 400
"""Changes kept of one offer; the oldest are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """Availability watched without a gap: ``changes`` are (instant, up from then on), the first of
    them the beginning; nothing is known after ``until``."""

    changes: tuple[tuple[float, bool], ...]
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """What has been seen of one offer: (instant, up from then on; None: out of sight from then on),
    in order of time. It is up while a machine of it is had, and down from a refusal or an
    interruption on. ``seen_at`` is when it was last looked at."""

    offer_id: OfferId
    changes: tuple[tuple[float, bool | None], ...] = ()
    seen_at: float = 0.0
    version: int = 0

    @property
    def last(self) -> tuple[float, bool | None]:
        """The last change; out of sight since ever where there is none."""
        return self.changes[-1] if self.changes else (0.0, None)

    def saw(self, up: bool, at: float) -> Self:
        """These after one more look. Instants before the last one count as it."""
        at = max(at, self.seen_at)
        changes = self.changes
        if self.last[1] is False and at - self.seen_at > WATCHED_S:
            changes = (*changes, (self.seen_at, None))
        if not changes or changes[-1][1] is not up:
            changes = (*changes, (at, up))
        if changes == self.changes and (up or at == self.seen_at):
            return self  # a machine that is had says nothing new at every tick
        return replace(self, changes=changes[-MOST_CHANGES:], seen_at=at)

    def out_of_sight(self, at: float) -> Self:
        """These after the last machine of the offer was ended by us: nobody looks any more."""
        if self.last[1] is not True:
            return self
        at = max(at, self.seen_at)
        return replace(self, changes=(*self.changes, (at, None))[-MOST_CHANGES:], seen_at=at)

    def spells(self, now: float) -> Iterator[Spell]:
        """The times in which it was watched, oldest first."""
        seen: list[tuple[float, bool]] = []
        for at, up in self.changes:
            if up is not None:
                seen.append((at, up))
            elif seen:
                yield Spell(changes=tuple(seen), until=at)
                seen = []
        if seen:
            yield Spell(changes=tuple(seen), until=now if seen[-1][1] else self.seen_at)
