"""What the clouds last offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from hybrid.domain.breaker import Breaker, covers
from hybrid.domain.ids import OfferId
from hybrid.domain.learned import Learned
from hybrid.domain.offer import Offer
from hybrid.ports.observation import Known, Observation, Unknown


class Ignoring(Protocol):
    """Whoever asks for offers and keeps what was ignored."""

    @property
    def ignored_offers(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """By provider, what is ignored, each with the reason."""
        ...


@dataclass(frozen=True, slots=True)
class OffersSeen:
    """Usable offers by id; ignored ones with the reason; providers that could not be read."""

    usable: tuple[Offer, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    closed: Mapping[OfferId, Breaker] = field(default_factory=dict)
    """The breaker before each offer that has one; the longest open of several."""


@dataclass(frozen=True, slots=True)
class Offered:
    """Reads what the loop's last observation brought. A process that stands by has none."""

    observation: Callable[[], Observation | None]
    observer: Ignoring
    breakers: Callable[[], Mapping[str, Breaker]] = dict
    learned: Callable[[], Learned] = Learned

    def seen(self) -> OffersSeen:
        """The offers of the last observation, with the boot times that were measured."""
        observation = self.observation()
        if observation is None:
            return OffersSeen(unknown=(("offers", "this server has not looked yet"),))
        usable: list[Offer] = []
        unknown: list[tuple[str, str]] = []
        for name, source in sorted(observation.offers.items()):
            match source:
                case Known(value=found):
                    usable += found
                case Unknown(cause=cause):
                    unknown.append((name, cause))
        ignored = self.observer.ignored_offers
        boots = self.learned().boot_s
        usable = [
            replace(offer, boot_s=boots[offer.pool].mean) if offer.pool in boots else offer
            for offer in usable
        ]
        return OffersSeen(
            closed=_closed(usable, self.breakers()),
            usable=tuple(sorted(usable, key=lambda offer: offer.id)),
            ignored=tuple(each for name in sorted(ignored) for each in ignored[name]),
            unknown=tuple(unknown),
        )


def _closed(offers: Iterable[Offer], breakers: Mapping[str, Breaker]) -> dict[OfferId, Breaker]:
    found: dict[OfferId, Breaker] = {}
    longest_last = sorted(breakers.values(), key=lambda b: (b.open_until, b.scope))
    for offer in offers if breakers else ():
        for breaker in longest_last:
            if covers(breaker.scope, offer):
                found[offer.id] = breaker
    return found
