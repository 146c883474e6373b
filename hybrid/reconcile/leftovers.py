"""What machines left behind in a cloud and still costs money or fills a quota: disks that did not
go with them, placement groups of gangs that are over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hybrid.domain.event import Event, EventKind
from hybrid.ports.capacity import Leftover
from hybrid.ports.observation import Known, Observation
from hybrid.ports.store import World


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveLeftover:
    """Remove what no live claim stands for."""

    provider: str
    leftover: Leftover

    @property
    def key(self) -> str:
        """Names the call."""
        return f"remove:{self.provider}:{self.leftover.kind}:{self.leftover.id}"


def removals(world: World, observation: Observation) -> Iterator[RemoveLeftover]:
    """What is to be removed now. The cloud was asked before ``world`` was read: whatever it listed
    was made for a claim that had been committed, so one that is not live is over. What names
    neither claim nor gang was not made by us, whatever it is tagged with."""
    gangs = {claim.gang for claim in world.claims.values() if claim.gang}
    for provider, source in sorted(observation.leftovers.items()):
        if not isinstance(source, Known):
            continue
        for each in sorted(source.value, key=lambda found: (found.kind, found.id)):
            if each.claim_id is None and not each.gang:
                continue
            if each.claim_id not in world.claims and each.gang not in gangs:
                yield RemoveLeftover(provider=provider, leftover=each)


def removed(effect: RemoveLeftover, at: float) -> Event:
    """What people are told of it."""
    left = effect.leftover
    return Event(
        kind=EventKind.SYSTEM,
        subject=left.id,
        what=f"{left.kind} removed",
        at=at,
        words=f"a {left.kind} at {effect.provider} that {left.claim_id or left.gang} left behind",
    )
